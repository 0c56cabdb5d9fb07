"""The one import of jaxlib's compiled modules, which carry no type stubs.

jaxlib reads its environment while it is being imported, so the settings come first.
"""

import os
from typing import Any


def quiet_startup() -> None:
    """Keep jaxlib from printing start-up notices, and, unless a level is set, errors, which are raised as well."""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = level if level.isdigit() and int(level) else "1"


quiet_startup()

# Compiled modules without stubs; the environment above must be set before they are imported.
from jaxlib import _hlo, _jax  # type: ignore[attr-defined]  # noqa: E402
from jaxlib.version import __version__  # noqa: E402

xla: Any = _jax
hlo_types: Any = _hlo
version: str = __version__

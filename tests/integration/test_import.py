"""What importing all packages leaves for later: modules that few programs need, and XLA's client."""

from __future__ import annotations

import subprocess
import sys

IMPORTED = """
import sys
import numpy
from fiveloop.core.backend import native  # jaxlib

before = {*sys.modules}
import fiveloop.api
from fiveloop.core.backend import client

late = {"hashlib", "difflib", "logging", "scipy", "matplotlib", "jaxlib.mlir", "jax", "tqdm"}
print(sorted(late & (sys.modules.keys() - before)), client._clients)
"""


def test_an_import_is_small() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "[] []"

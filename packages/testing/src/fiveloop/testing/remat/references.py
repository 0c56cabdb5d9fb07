"""References of `checkpoint`, which is a call, and of `name`, which is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.testing.core.oracle import Run, define_nested_reference, define_reference


def _checkpoint(values: Sequence[Any], p: Any, run: Run) -> list[Any]:
    return run(p.jaxpr, values)


define_nested_reference("checkpoint", _checkpoint)
define_reference("name", lambda values, p: list(values))

"""The references of all of core's primitives; importing this module fills the oracle's table."""

from __future__ import annotations

from fiveloop.testing.core import (
    reference_collectives,
    reference_elementwise,
    reference_index,
    reference_running,
    reference_shape,
)

__all__ = [
    "reference_collectives",
    "reference_elementwise",
    "reference_index",
    "reference_running",
    "reference_shape",
]

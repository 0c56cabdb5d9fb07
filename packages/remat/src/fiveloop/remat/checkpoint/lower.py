"""Lowering: written in place; a recomputation is kept apart from the first computation by a barrier.

Where the first computation is not in the same loop body or function body, nothing could be merged with it, and
no barrier is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core.extend import IRValue, hlo
from fiveloop.remat.checkpoint.primitive import CheckpointParams


def checkpoint_lower(ctx: Any, operands: Sequence[IRValue], p: CheckpointParams) -> list[IRValue]:
    """The operations of the jaxpr, on operands that have passed a barrier if they might be merged."""
    if not p.recomputes:
        ctx.note_computed(p.origin)
    elif ctx.is_computed(p.origin) and operands:
        operands = hlo.optimization_barrier(ctx.b, operands)
    return list(ctx.inline(p.jaxpr, operands))

"""Batching: call the batched jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core.array import Value
from fiveloop.core.closed_call.primitive import ClosedCallParams, closed_call_p
from fiveloop.core.trace.tracer import bind
from fiveloop.core.transforms.batch import batch_jaxpr, move_batch


def closed_call_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: ClosedCallParams
) -> tuple[list[Value], list[int | None]]:
    """Call once for the whole batch, in axis 0 of each batched operand."""
    batched = tuple(d is not None for d in dims)
    jaxpr, out_batched = batch_jaxpr(p.jaxpr, size, batched)
    moved = [move_batch(x, size, d) if d is not None else x for x, d in zip(operands, dims, strict=True)]
    outs = bind(closed_call_p, *moved, params=replace(p, jaxpr=jaxpr))
    return outs, [0 if b else None for b in out_batched]

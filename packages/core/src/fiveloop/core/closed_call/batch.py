"""Batching: call the batched jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fiveloop.core.array import Value
from fiveloop.core.closed_call.bind import bind_call
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.transforms.batch import batch_jaxpr, move_batch


def call_batch(
    prim: Primitive[Any], size: int, operands: Sequence[Value], dims: Sequence[int | None], p: Any
) -> tuple[list[Value], list[int | None]]:
    """Call once for the whole batch, in axis 0 of each batched operand; for any primitive that calls `p.jaxpr`."""
    batched = tuple(d is not None for d in dims)
    jaxpr, out_batched = batch_jaxpr(p.jaxpr, size, batched)
    moved = [
        move_batch(x, size, d) if d is not None else x for x, d in zip(operands, dims, strict=True)
    ]
    outs = bind_call(prim, moved, replace(p, jaxpr=jaxpr))
    return outs, [0 if b else None for b in out_batched]

"""Batching: call the batched jaxpr."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fiveloop.core import ad, ir, transforms
from fiveloop.core.closed_call.bind import bind_call


def call_batch(
    prim: ir.Primitive[Any], size: int, operands: ad.Values, dims: ad.BatchAxes, p: Any
) -> ad.Batched:
    """Call once for the whole batch; for any primitive that calls `p.jaxpr`.

    `dims` are the operands' batch axes, or None; those given back are the results'. As a cell:
    `partial(call_batch, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: (x * y, y))(1.0, 1.0))
    >>> operands = [iota(np.float32, 3), as_value(2.0)]
    >>> outs, dims = call_batch(closed_call_p, 3, operands, [0, None], p)
    >>> print(*outs, dims)
    [0. 2. 4.] 2.0 [0, None]
    """
    batched = tuple(d is not None for d in dims)
    axes = transforms.axes_in_front(operands, dims)
    jaxpr, out_batched = transforms.batch_jaxpr(p.jaxpr, size, batched, axes=axes)
    moved = transforms.in_front(size, operands, dims)
    outs = bind_call(prim, moved, replace(p, jaxpr=jaxpr))
    return outs, [0 if b else None for b in out_batched]

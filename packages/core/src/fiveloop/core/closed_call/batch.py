"""Batching: call the batched jaxpr."""

from __future__ import annotations

from typing import Any

from fiveloop.core import ad, ir, transforms, util
from fiveloop.core.closed_call.bind import bind_call
from fiveloop.core.closed_call.bodies import changed_alike, num_choosing


def call_batch(
    prim: ir.Primitive[Any], size: int, operands: ad.Values, dims: ad.BatchAxes, p: Any
) -> ad.Batched:
    """Call once for the whole batch; for any primitive that calls its jaxprs.

    `dims` are the operands' batch axes, or None; those given back are the results'. As a cell:
    `partial(call_batch, prim)`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x, y: (x * y, y))(1.0, 1.0))
    >>> operands = [iota(np.float32, 3), as_value(2.0)]
    >>> outs, dims = call_batch(closed_call_p, 3, operands, [0, None], p)
    >>> print(*outs, dims)
    [0. 2. 4.] 2.0 [0, None]
    """
    first = num_choosing(p, operands)
    choosing, moved = util.split_list(transforms.in_front(size, operands, dims), [first])
    dims = dims[first:]
    batched = tuple(d is not None for d in dims)
    axes = transforms.axes_in_front(operands[first:], dims)
    params, out_batched = changed_alike(
        p, lambda j, inst: transforms.batch_jaxpr(j, size, batched, inst, axes=axes)
    )
    outs = bind_call(prim, [*choosing, *moved], params)
    return outs, [0 if b else None for b in out_batched]

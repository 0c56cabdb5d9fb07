"""Everything fiveloop knows about `progress`: every transform keeps the equation in the primal computation."""

from __future__ import annotations

from typing import Any

from fiveloop.core import Value, ad, prims, rules, trace, transforms
from fiveloop.core.backend import hlo
from fiveloop.loops.progress.primitive import MarkParams, mark_abstract_eval, mark_p
from fiveloop.state import predicate


def mark_impl(values: ad.Values, p: MarkParams) -> list[Value]:
    """Nothing: bodies that run as Python have a bar of their own."""
    return []


def mark_lower(ctx: Any, operands: hlo.IRValues, p: MarkParams) -> list[hlo.IRValue]:
    """Nothing: the loop around it has seen it."""
    return []


def mark_jvp(primals: ad.Values, tangents: ad.Tangents, p: MarkParams) -> ad.Duals:
    """The mark of the primal loop, which may be that of the tangents as well."""
    return trace.bind(mark_p, *primals, params=p), []


def mark_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: MarkParams) -> ad.Batched:
    """One bar for all lanes, as long as the longest."""
    longest = [
        x if d is None or not size else prims.reduce_max(transforms.move_batch(x, size, d))
        for x, d in zip(operands, dims, strict=True)
    ]
    return trace.bind(mark_p, *[x for x in longest if not x.ndim], params=p), []


def mark_predicate(
    pred: Value, operands: ad.Values, guard: predicate.Guard, p: MarkParams
) -> list[Value]:
    """The same mark: the loop runs for the lanes that it concerns."""
    return trace.bind(mark_p, *operands, params=p)


rules.define(
    mark_p,
    abstract_eval=mark_abstract_eval,
    lower=mark_lower,
    impl=mark_impl,
    jvp=mark_jvp,
    batch=mark_batch,
    transpose=rules.Refusal("it belongs to the loop that computes values"),
)
predicate.define_predicate(mark_p, mark_predicate)

"""Everything fiveloop knows about `progress`: an equation in a loop's body which says that the loop shows its progress.

Every transform keeps the equation in the primal computation.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fiveloop.core import ad, ir, prims, rules, trace, transforms
from fiveloop.core.dataclass import dataclass
from fiveloop.state import predicate

COUNT = ir.ShapedArray((), np.int32)


@dataclass(frozen=True)
class ProgressEffect(ir.Effect):
    """The effect of a progress bar, which is shown once: by the loop that computes values, not for each lane."""

    may_fail: ClassVar[bool] = True


@dataclass(frozen=True)
class MarkParams:
    """A bar, by its text and by after how many steps it is brought up to date.

    operands : [] or [number of steps]
    """

    desc: str | None
    every: int | None


mark_p: ir.Primitive[MarkParams] = ir.Primitive("progress")


def mark_abstract_eval(avals: ir.Avals, p: MarkParams) -> ir.Typing:
    """No results, and the effect."""
    if [a.strong() for a in avals] not in ([], [COUNT]):
        raise TypeError(f"progress: expected no operand or a number of steps, got {list(avals)}")
    return [], frozenset([ProgressEffect()])


def mark_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: MarkParams) -> ad.Batched:
    """One bar for all lanes, as long as the longest."""
    longest = [
        x if d is None or not size else prims.reduce_max(transforms.move_batch(x, size, d))
        for x, d in zip(operands, dims, strict=True)
    ]
    return trace.bind(mark_p, *[x for x in longest if not x.ndim], params=p), []


rules.define(
    mark_p,
    abstract_eval=mark_abstract_eval,
    lower=lambda ctx, operands, p: [],  # the loop around it has seen it
    impl=lambda values, p: [],  # bodies that run as Python have a bar of their own
    # The loop of the values may be that of the tangents as well.
    jvp=lambda primals, tangents, p: (trace.bind(mark_p, *primals, params=p), []),
    batch=mark_batch,
    transpose=rules.Refusal("it belongs to the loop that computes values"),
)
# The loop runs for the lanes that it concerns.
predicate.define_predicate(
    mark_p, lambda pred, operands, guard, p: trace.bind(mark_p, *operands, params=p)
)

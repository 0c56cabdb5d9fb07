"""Transposition: the transposed branches, by the same index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, Value, extend
from fiveloop.core.engine import Mask, Operand, passed
from fiveloop.core.extend import Tangent, Zero, bind, eval_jaxpr, is_linear, transpose_jaxpr
from fiveloop.loops.primitives.cond import CondParams, cond_p


def cond_transpose(
    cts: Sequence[Tangent], operands: Sequence[Operand], p: CondParams
) -> list[Tangent | None]:
    """Choose once, on the values, the accumulators and the nonzero cotangents."""
    index, *rest = operands
    assert isinstance(index, Value), "unreachable: an index is an integer and so never linear"
    linear = tuple(is_linear(x) for x in rest)
    present = extend.nonzero_mask(cts)
    found = [transpose_jaxpr(b, linear, present, rest)[1] for b in p.branches]
    in_nonzero = tuple(any(masks) for masks in zip(*found, strict=True))
    branches = tuple(_transposed(b, linear, present, in_nonzero, rest) for b in p.branches)
    args = [x for x in map(passed, rest) if x is not None]
    args += [ct for ct in cts if not isinstance(ct, Zero)]
    results = iter(bind(cond_p, index, *args, params=replace(p, branches=branches)))
    in_cts: list[Tangent | None] = [
        (next(results) if nz else Zero(x.aval)) if lin else None
        for x, lin, nz in zip(rest, linear, in_nonzero, strict=True)
    ]
    return [None, *in_cts]


def _transposed(
    branch: Jaxpr, linear: Mask, present: Mask, wanted: Mask, operands: Sequence[Operand]
) -> Jaxpr:
    """The transpose of a branch, with zeros for cotangents that only other branches give.

    branch   : [*ins]                                                    -> [*outs]
    branch_t : [*values and accumulators, *nonzero cts]                  -> [*wanted in cts]
    """
    branch_t, given = transpose_jaxpr(branch, linear, present, operands)
    if given == wanted:
        return branch_t

    def run(*args: Value) -> list[Value]:
        outs = iter(eval_jaxpr(branch_t, args))
        masks = zip(given, wanted, branch.in_avals, strict=True)
        return [next(outs) if g else extend.zeros_of(a) for g, w, a in masks if w]

    key = ("transposed branch", wanted)
    return branch_t.remember(key, lambda: extend.stage_closed(run, branch_t.in_avals, branch.name))

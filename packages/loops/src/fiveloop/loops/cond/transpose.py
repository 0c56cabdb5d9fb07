"""Transposition: the transposed branches, by the same index."""

from __future__ import annotations

from dataclasses import replace

from fiveloop.core import Jaxpr, Value, ad, trace, transforms, util
from fiveloop.loops.primitives.cond import CondParams, cond_p


def cond_transpose(cts: ad.Tangents, operands: ad.Operands, p: CondParams) -> ad.Cotangents:
    """Choose once, on the values, the accumulators and the nonzero cotangents."""
    index, *rest = operands
    assert isinstance(index, Value), "unreachable: an index is an integer and so never linear"
    linear = tuple(transforms.is_linear(x) for x in rest)
    present = transforms.nonzero_mask(cts)
    found = [transforms.transpose_jaxpr(b, linear, present, rest)[1] for b in p.branches]
    in_nonzero = tuple(any(masks) for masks in zip(*found, strict=True))
    branches = tuple(_transposed(b, linear, present, in_nonzero, rest) for b in p.branches)
    args = [x for x in map(transforms.passed, rest) if x is not None]
    args += [ct for ct in cts if not isinstance(ct, ad.Zero)]
    results = iter(trace.bind(cond_p, index, *args, params=replace(p, branches=branches)))
    in_cts: ad.Cotangents = [
        (next(results) if nz else ad.Zero(x.aval)) if lin else None
        for x, lin, nz in zip(rest, linear, in_nonzero, strict=True)
    ]
    return [None, *in_cts]


def _transposed(
    branch: Jaxpr, linear: util.Mask, present: util.Mask, wanted: util.Mask, operands: ad.Operands
) -> Jaxpr:
    """The transpose of a branch, with zeros for cotangents that only other branches give.

    branch   : [*ins]                                                    -> [*outs]
    branch_t : [*values and accumulators, *nonzero cts]                  -> [*wanted in cts]
    """
    branch_t, given = transforms.transpose_jaxpr(branch, linear, present, operands)
    if given == wanted:
        return branch_t

    def run(*args: Value) -> list[Value]:
        outs = iter(transforms.eval_jaxpr(branch_t, args))
        masks = zip(given, wanted, branch.in_avals, strict=True)
        return [next(outs) if g else transforms.zeros_of(a) for g, w, a in masks if w]

    key = ("transposed branch", wanted)
    return branch_t.remember(key, lambda: trace.stage_closed(run, branch_t.in_avals, branch.name))

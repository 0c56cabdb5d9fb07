"""Transposition: compute again what was not saved, then go backward, in one call.

The call waits for the cotangents, so that the values computed again live no longer than they must.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import Mask, Operand, into_aval, passed
from fiveloop.core.extend import (
    SAVE_EVERYTHING,
    Accumulator,
    Aval,
    Tangent,
    UndefinedPrimal,
    Zero,
    backward_pass,
    bind,
    eval_jaxpr,
    instantiate,
    is_linear,
    nonzero_mask,
    split,
    stage_closed,
)
from fiveloop.remat.checkpoint.primitive import CheckpointParams, checkpoint_p


def checkpoint_transpose(
    cts: Sequence[Tangent], operands: Sequence[Operand], p: CheckpointParams
) -> list[Tangent | None]:
    """One call on the known operands, the accumulators and the nonzero cotangents."""
    linear = tuple(is_linear(x) for x in operands)
    cts_nonzero = nonzero_mask(cts)
    into = tuple(map(into_aval, operands))
    key = ("checkpoint transposed", linear, cts_nonzero, into)
    jaxpr_t, in_nonzero = p.jaxpr.remember(
        key, lambda: _transposed(p.jaxpr, linear, cts_nonzero, into)
    )
    args = [x for x in map(passed, operands) if x is not None]
    args += [ct for ct in cts if not isinstance(ct, Zero)]
    results = iter(bind(checkpoint_p, *args, params=replace(p, jaxpr=jaxpr_t, recomputes=True)))
    return [
        (next(results) if nz else Zero(x.aval)) if isinstance(x, UndefinedPrimal) else None
        for x, nz in zip(operands, in_nonzero, strict=True)
    ]


def _transposed(
    jaxpr: Jaxpr, linear: Mask, cts_nonzero: Mask, into: Sequence[Aval | None]
) -> tuple[Jaxpr, Mask]:
    """The transposed jaxpr, and which linear operands have a nonzero cotangent.

    jaxpr   : [*ins]                                                    -> [*outs]
    again   : [*known ins]                                              -> [*residuals]
    forward : [*residuals, *ins that are linear or at hand]             -> [*outs]
    jaxpr_t : [*ins without linear values, *nonzero cts]                -> [*nonzero in cts]
    """
    cut = split(jaxpr, linear, [False] * len(linear), SAVE_EVERYTHING, ensure_out_unknown=True)
    ins = zip(jaxpr.in_avals, linear, into, strict=True)
    avals = [target or (a if not lin or a.accumulates else None) for a, lin, target in ins]
    given = [a is not None for a in avals]
    nonzero: list[bool] = []

    def run(*args: Value) -> list[Value]:
        values, cts = iter(args[: sum(given)]), iter(args[sum(given) :])
        taken = [next(values) if g else None for g in given]
        known = [x for x, lin in zip(taken, linear, strict=True) if not lin and x is not None]
        residuals = eval_jaxpr(cut.known, known)
        operands: list[Operand] = [*residuals]
        for v, x, lin, staged in zip(jaxpr.invars, taken, linear, cut.staged_in, strict=True):
            if staged:
                operands.append(_operand(v.aval, x, lin))
        out_cts = [
            next(cts) if nz else Zero(a.aval)
            for a, nz in zip(jaxpr.outvars, cts_nonzero, strict=True)
        ]
        in_cts = backward_pass(cut.staged, operands, out_cts)
        nonzero[:] = [not isinstance(ct, Zero) for ct in in_cts]
        return [instantiate(ct) for ct in in_cts if not isinstance(ct, Zero)]

    ct_avals = [a.aval.strong() for a, nz in zip(jaxpr.outvars, cts_nonzero, strict=True) if nz]
    made = stage_closed(run, [*filter(None, avals), *ct_avals], jaxpr.name)
    flags = iter(nonzero)
    return made, tuple(next(flags) if lin else False for lin in linear)


def _operand(aval: Aval, x: Value | None, linear: bool) -> Operand:
    if x is None or (linear and not aval.accumulates):
        return UndefinedPrimal(aval, x)
    return Accumulator(x) if linear else x

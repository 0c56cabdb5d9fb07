"""Transposition: the loop in reverse, over accumulators of cotangents.

A linear state becomes the state that holds its cotangent, which is read and written where the state was
written and read: one element costs one element. A linear constant gathers its cotangent in a state too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, Value, ad, ir, trace, transforms, util
from fiveloop.loops.analysis.slots import sums_as_writes
from fiveloop.loops.common import reached
from fiveloop.loops.primitives.for_loop import ForParams, by_operand, for_p, is_state, stateful
from fiveloop.loops.record import BACKWARD
from fiveloop.state import AbstractRef


def for_transpose(cts: ad.Tangents, operands: ad.Operands, p: ForParams) -> ad.Cotangents:
    """Loop once, in the other direction, over what is known and the cotangents."""
    p = stateful(p)
    ct_of = by_operand(p, operands, cts)
    written = ir.mutated_positions(p.body.effects)
    operands = [
        _collected(x, ct, k + 1 in written)
        for k, (x, ct) in enumerate(zip(operands, ct_of, strict=True))
    ]
    states = is_state(p, operands)
    # In some step also a state is linear that starts from a known zero and is written to.
    given = [transforms.is_linear(x) for x in operands]
    linear = reached(
        p.body, given, states, lambda body, *to: ir.reachable(body, to[0], fixed=to[1])
    )
    body_t, num_consts = _transposed_body(p, linear)
    body_t = sums_as_writes(body_t, p.nsteps, _starting_from_zero(body_t, linear, operands, ct_of))
    known = [x for x, lin in zip(operands, linear, strict=True) if not lin and isinstance(x, Value)]
    gathered = [_initial(x, ct) for x, ct, lin in zip(operands, ct_of, linear, strict=True) if lin]
    record = p.record.moved(BACKWARD, p.record.saved)
    params = replace(p, body=body_t, num_consts=num_consts, reverse=not p.reverse, record=record)
    results = iter(trace.bind(for_p, *known, *gathered, params=params))
    for lin, state in zip(linear, states, strict=True):
        if state and not lin:
            next(results)  # what is known comes out as it went in
    in_cts = [
        next(results) if lin and not isinstance(x, ad.Accumulator) else None
        for x, lin in zip(operands, linear, strict=True)
    ]
    pairs = zip(operands, in_cts, strict=True)
    return [ct if isinstance(x, ad.UndefinedPrimal) else None for x, ct in pairs]


def _starting_from_zero(
    body_t: Jaxpr, linear: Sequence[bool], operands: ad.Operands, ct_of: Sequence[ad.Tangent | None]
) -> list[ir.Var]:
    """The binders of the cotangents that are zero before the loop; they are the body's last."""
    gathered = [(x, ct) for x, ct, lin in zip(operands, ct_of, linear, strict=True) if lin]
    binders = body_t.invars[len(body_t.invars) - len(gathered) :]
    return [
        v
        for v, (x, ct) in zip(binders, gathered, strict=True)
        if not isinstance(x, ad.Accumulator) and (ct is None or isinstance(ct, ad.Zero))
    ]


def _initial(x: ad.Operand, ct: ad.Tangent | None) -> Value:
    """What a cotangent's state starts from: the cotangent of the final state, or zero; or the accumulator itself."""
    if isinstance(x, ad.Accumulator):
        return x.value
    if ct is None or isinstance(ct, ad.Zero):
        return transforms.zeros_of(x.aval)
    return transforms.instantiate(ct)


def _collected(x: ad.Operand, ct: ad.Tangent | None, written: bool) -> ad.Operand:
    """In place of an operand that the loop only reads, what its cotangents are added to, if there is such a thing."""
    into = x.into if isinstance(x, ad.UndefinedPrimal) else None
    ends = ct is None or isinstance(ct, ad.Zero)
    return ad.Accumulator(into) if into is not None and ends and not written else x


@ir.once_per(lambda p, linear: (p.body, p.num_consts, linear))
def _transposed_body(p: ForParams, linear: Sequence[bool]) -> tuple[Jaxpr, int]:
    """The transposed body, and how many constants it has.

    p.body : [i, *consts, *refs]                                         -> []
    body_t : [i, *known consts, *known refs, *cotangents, as Refs]       -> []
    """
    binders = p.body.in_avals[1:]
    known_avals, linear_avals = util.partition(linear, binders)
    num_linear_consts = sum(linear[: p.num_consts])

    def run(i: Value, *args: Value) -> list[Value]:
        known, gathered = iter(args[: len(known_avals)]), args[len(known_avals) :]
        refs = iter(gathered)
        operands: list[ad.Operand] = [i]
        for k, (aval, lin) in enumerate(zip(binders, linear, strict=True)):
            if not lin:
                operands.append(next(known))
            elif k < p.num_consts:
                operands.append(ad.UndefinedPrimal(aval, next(refs)))
            else:
                operands.append(ad.Accumulator(next(refs)))
        transforms.backward_pass(p.body, operands, ())
        return []

    as_refs = [a if isinstance(a, AbstractRef) else AbstractRef(a) for a in linear_avals]
    known_hints, linear_hints = util.partition(linear, p.body.hints[1:])
    cotangents = [h and f"cotangent of {h.removeprefix('tangent of ')}" for h in linear_hints]
    avals = [p.body.in_avals[0], *known_avals, *as_refs]
    body_t = trace.stage_closed(run, avals, p.body.name, ["", *known_hints, *cotangents])
    return body_t, p.num_consts - num_linear_consts

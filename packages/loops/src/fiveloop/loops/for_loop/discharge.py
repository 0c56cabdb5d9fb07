"""Discharge: a loop that carries the contents of the Refs that its body changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Value, ir, trace
from fiveloop.loops.primitives.for_loop import ForParams, end_flag, for_p
from fiveloop.state import discharge


def for_discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: ForParams
) -> list[Value]:
    """Loop over contents.

    p.body     : [i, *consts, *carry, *refs]                    -> [*carry]
    discharged : [i, *consts, *carry, *contents and Refs left]  -> [*carry, *contents changed]
    body       : [i, *consts, *contents read, *carry, *contents changed, *Refs left] -> [*carry, *contents changed]
    """
    first = p.first_ref
    changed = ir.mutated_positions(p.body.effects)
    left = [k for k, x in enumerate(operands) if isinstance(x, Value) and x.aval.accumulates]
    is_ref = [k >= first and k not in left for k in range(len(operands))]
    results = [r and k + 1 in changed for k, r in enumerate(is_ref)]
    discharged = discharge.discharge_jaxpr(
        p.body, (False, *is_ref), (False, *results), counter=0, unrolled=p.unroll > 1
    )
    read = [k for k, r in enumerate(is_ref) if r and not results[k]]
    carried = [k for k, r in enumerate(results) if r]
    layout = [*range(p.num_consts), *read, *range(p.num_consts, first), *carried, *left]
    body = _laid_out(discharged, tuple(layout))
    values = ctx.values(operands)
    params = replace(p, body=body, num_consts=p.num_consts + len(read), end=_end(p, carried))
    outs = trace.bind(for_p, *[values[k] for k in layout], params=params)
    final = dict(zip(carried, outs[p.num_carry :], strict=True))
    for k, x in enumerate(operands):
        if isinstance(x, discharge.Cell) and k in final:
            ctx.assign(x, final[k])
    states = [k for k, r in enumerate(is_ref) if r and not isinstance(operands[k], discharge.Cell)]
    return [*outs[: p.num_carry], *[final.get(k, values[k]) for k in states]]


@ir.once_per_jaxpr
def _laid_out(body: ir.Jaxpr, layout: tuple[int, ...]) -> ir.Jaxpr:
    """A body with its operands behind the counter in another order."""
    counter, *operands = body.invars
    return body.replace(invars=[counter, *[operands[k] for k in layout]])


def _end(p: ForParams, carried: Sequence[int]) -> int | None:
    """The number of the carried value that ends the loop."""
    flag = end_flag(p.body)
    if flag is None:
        return p.end
    operand = p.body.invars.index(flag) - 1
    return carried.index(operand) if operand in carried else None

"""Discharge: a loop that carries the contents of the Refs that its body changes; its condition reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, trace, transforms, util
from fiveloop.loops.common import with_inputs
from fiveloop.loops.primitives.while_loop import WhileParams, while_p
from fiveloop.state import discharge

COUNTER = ir.ShapedArray((), np.int32)
_LARGEST = 2**30 - 1


def while_discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: WhileParams
) -> list[Value]:
    """Loop over contents.

    p.cond, p.body : [*consts, *carry, *refs]
    cond, body     : [*consts, *contents read, *carry, *contents changed, counter, *refs left]
    """
    which = [isinstance(x, discharge.Cell) for x in operands]
    changed = [k for k in sorted(ir.mutated_positions(p.body.effects)) if which[k]]
    read = [k for k, w in enumerate(which) if w and k not in changed]
    left = [k for k in range(p.first_ref, len(which)) if not which[k]]
    before = [*range(p.num_consts), *read, *range(p.num_consts, p.first_ref), *changed]
    values = ctx.values(operands)
    params = WhileParams(
        _discharged_cond(p, which, before, left),
        _discharged_body(p, which, before, left, changed),
        p.num_consts + len(read),
        p.promote,
        p.slots,
        p.counted,
        _kept(p, [*range(p.num_consts, p.first_ref), *changed, None, *left]),
        p.record,
    )
    args = [*[values[k] for k in before], _number(0), *[values[k] for k in left]]
    outs = trace.bind(while_p, *args, params=params)
    num = p.num_carry + len(changed)
    final = dict(zip(changed, outs[p.num_carry : num], strict=True))
    for k, x in enumerate(operands):
        if isinstance(x, discharge.Cell) and k in final:
            ctx.assign(x, final[k])
    return [*outs[: p.num_carry], *_cache(p, [*changed, *left], outs[num + 1 :])]


def _kept(p: WhileParams, operands: Sequence[int | None]) -> util.Mask:
    """Which of these operands, by number, are saved on the way."""
    if not p.kept:
        return ()
    return tuple(k is not None and p.kept[k - p.num_consts] for k in operands)


def _cache(p: WhileParams, refs: Sequence[int], cache: Sequence[Value]) -> list[Value]:
    """What is saved on the way, in the order of the operands; `refs` says in which order the Refs are."""
    kept = _kept(p, refs)
    first = len(cache) - sum(kept)
    slots = dict(zip(util.select_by(kept, refs) if kept else (), cache[first:], strict=True))
    return [*cache[:first], *[slots[k] for k in sorted(slots)]]


def _discharged_cond(
    p: WhileParams, which: Sequence[bool], before: Sequence[int], left: Sequence[int]
) -> Jaxpr:
    cond = with_inputs(
        discharge.discharge_jaxpr(p.cond, which, (False,) * len(which)), [COUNTER], 0
    )
    counter, *binders = cond.invars
    return cond.replace(
        invars=[*[binders[k] for k in before], counter, *[binders[k] for k in left]]
    )


def _discharged_body(
    p: WhileParams,
    which: Sequence[bool],
    before: Sequence[int],
    left: Sequence[int],
    changed: Sequence[int],
) -> Jaxpr:
    """The body on contents, and the counter, which has no use but to keep reads before writes.

    counted : [counter, *ins]                           -> [*carry, *contents changed]
    body    : [*ins before, counter, *refs left]        -> [*carry, *contents changed, counter]
    """
    counted = p.body.remember("counted", lambda: with_inputs(p.body, [COUNTER], 0))
    results = [k in changed for k in range(len(which))]
    discharged = discharge.discharge_jaxpr(counted, (False, *which), (False, *results), counter=0)
    avals = discharged.in_avals[1:]
    place = {k: j for j, k in enumerate([*before, -1, *left])}

    def run(*args: Value) -> list[Value]:
        counter = args[len(before)]
        outs = transforms.eval_jaxpr(
            discharged, [counter, *[args[place[k]] for k in range(len(avals))]]
        )
        # However many steps there are, it never becomes negative.
        return [*outs, prims.bitwise_and(prims.add(counter, _number(1)), _number(_LARGEST))]

    binders = [*[avals[k] for k in before], COUNTER, *[avals[k] for k in left]]
    return trace.stage_closed(run, binders, p.body.name)


def _number(n: int) -> arrays.Scalar:
    return arrays.Scalar(np.asarray(n, np.int32))

"""Turns of several steps for a loop that may end after any of them: a step after the end changes nothing.

A short step takes no more time than testing whether to take it. So the loop tests once a turn, and the last turn runs
to its end: its steps after the end of the loop leave the carry as it is, and write zeros to their own slots, which hold
zeros. Such a step has operations only: no Python callback, no inner loop and no other effect. A loop that has no such
slots, because nothing of it is saved or stacked, tests in each step: on jaxlib 0.10.2 some of these loops are slower
otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fiveloop.core import Jaxpr, Value, ad, ir, prims, rules, trace, transforms
from fiveloop.loops import options
from fiveloop.loops.analysis.accesses import Around
from fiveloop.loops.plan import branch, unroll
from fiveloop.loops.primitives.for_loop import for_p, without_end
from fiveloop.loops.record import Decision, Planned
from fiveloop.state import AbstractRef, discharge, primitives

TURNS = ((28, 4), (50, 2))
"""Equations of a step that may run after the end, at most; and how many steps make a turn.

Measured on two versions of jaxlib with fourteen bodies, of 11 to 83 equations, forward and with their derivatives.
"""


def masked(eqn: ir.Eqn, around: Around) -> Planned | None:
    """A loop that asks once in several steps whether it has ended; None if the loop asks in each step, or never.

    p.body : [i, *consts, *refs]       -> []
    body   : [i, *consts, end, *refs]  -> [end]
    """
    p = eqn.params
    ends = None if p.num_carry or p.unroll != options.AUTO else without_end(p.body)
    if ends is None or isinstance(eqn.invars[ends[1] - 1].aval, AbstractRef):
        return None
    step, flag = ends
    slots = branch.untouched(eqn.replace(params=replace(p, body=step)), around)
    if not slots or not all(_leaves_no_trace(e, slots) for e in step.eqns):
        return None
    which = [k == flag for k in range(len(step.invars))]
    body = discharge.discharge_jaxpr(_masked(step, flag, slots), which, which)
    count = next((n for most, n in TURNS if len(body.eqns) <= most), 1)
    if count == 1 or p.nsteps < unroll.LEAST_TURNS * count:
        return None
    done = f"it may end after any step, and tests for its end once in {count}: steps after the end change nothing"
    loop = _carrying_end(eqn, body, flag, count)
    return Planned(loop, told=[Decision(unroll.STEP, "", True, done, eqn.source)])


def _leaves_no_trace(eqn: ir.Eqn, slots: Collection[ir.Atom]) -> bool:
    """Whether an equation of a step is light, and can be made to change nothing by what it writes."""
    sizes = [ir.size_of(v.aval.shape) for v in eqn.outvars]
    if unroll.is_long(eqn) or any(ir.is_more(size, unroll.FEW) for size in sizes):
        return False
    if not ir.mutated_positions(eqn.effects):
        return all(isinstance(e, ir.PositionalEffect) for e in eqn.effects)
    ref, *_ = eqn.invars
    if eqn.primitive is not primitives.swap_p or ir.is_more(
        ir.size_of(eqn.invars[1].aval.shape), unroll.FEW
    ):
        return False
    return ref in slots or unroll.is_whole(eqn, ref)


def _masked(step: Jaxpr, flag: int, slots: Collection[ir.Atom]) -> Jaxpr:
    """The step, which writes what is there already once the flag is set.

    step, masked : [i, *consts, *refs] -> []
    """

    def run(*args: Value) -> list[Value]:
        goes_on = prims.bitwise_not(args[flag][...])

        def masked_eqn(eqn: ir.Eqn, operands: ad.Values) -> list[Value]:
            if eqn.primitive is not primitives.swap_p:
                return trace.bind_eqn(eqn, operands)
            ref, x, *index = operands
            if ref is args[flag]:
                x = prims.bitwise_not(goes_on & prims.bitwise_not(x))
            else:
                is_slot = eqn.invars[0] in slots
                there = transforms.zeros_of(x.aval) if is_slot else ref[...]
                x = prims.select(goes_on, x, there)
            return trace.bind_eqn(eqn, [ref, x, *index])

        return transforms.interpret(step, args, masked_eqn)

    return trace.stage_closed(run, step.in_avals, step.name, step.hints)


def _carrying_end(eqn: ir.Eqn, body: Jaxpr, flag: int, count: int) -> ir.Eqn:
    """The loop with a body that gives, and takes at the position `flag`, whether it has ended."""
    p = eqn.params
    first = 1 + p.num_consts
    order = [*range(first), flag, *[k for k in range(first, len(body.invars)) if k != flag]]
    states = [not isinstance(a.aval, AbstractRef) for a in eqn.invars[p.num_consts :]]
    end = eqn.outvars[sum(states[: flag - first])]
    params = replace(
        p,
        body=body.replace(invars=[body.invars[k] for k in order]),
        end=0,
        unroll=count,
        record=p.record.in_order([k - 1 for k in order[1:]]),
    )
    return rules.new_eqn(
        for_p,
        [eqn.invars[k - 1] for k in order[1:]],
        params,
        [end, *[v for v in eqn.outvars if v is not end]],
        eqn.source,
    )

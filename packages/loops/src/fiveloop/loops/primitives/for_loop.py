"""The primitive `for`: its params, types and effects; and the form of a body that may end the loop early.

Such a body sets a flag; once it is set, the remaining steps do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.util import T
from fiveloop.loops import common, options
from fiveloop.loops.primitives import cond
from fiveloop.loops.primitives.slots import is_slots, room_beside
from fiveloop.loops.record import EMPTY, Record, names_of
from fiveloop.loops.schedules.binomial import Slots
from fiveloop.state import AbstractRef, predicate, primitives

INDEX = ir.ShapedArray((), np.int32)
WHICH = ("", "lowest", "highest")


@dataclass(frozen=True)
class ForParams:
    """A loop of `nsteps` steps of `body`, with the counter going up, or down if `reverse`.

    body     : [i, *consts, *carry, *refs] -> [*carry]
    operands : [*consts, *carry, *states and Refs]
    results  : [*carry, *final states]

    The last operands are all Refs to the body. A value among them is a state: it is the Ref's contents before the loop,
    and its contents after the loop are a result. Carried values occur only after discharge.

    `end` is the number of a carried bool that, once True, keeps the steps from changing anything: there the loop may
    end. If the loop is `counted`, its first constant says how many steps it takes, of at most `nsteps`: the steps with
    the "lowest" numbers, or with the "highest". With `slots` its derivative saves so many states at a time, and
    recomputes the others from them; otherwise it saves the residuals of each step. `off` are the names of the planning
    steps that are off; `record` holds the decisions of the other steps, if `Planning.tell` is on. `lanes` is not None
    if the steps are the lanes of a batch, which run one after the other: it counts the batches that the loop has been
    put in since.
    """

    nsteps: int
    body: Jaxpr
    num_consts: int
    reverse: bool = False
    unroll: int = options.AUTO
    end: int | None = None
    counted: str = ""
    slots: Slots | None = None
    off: tuple[str, ...] = ()
    record: Record = field(default=EMPTY, compare=False)
    lanes: int | None = None

    @property
    def num_carry(self) -> int:
        return len(self.body.outvars)

    @property
    def starts_late(self) -> bool:
        """Whether the number of the first step is computed."""
        return self.counted == ("lowest" if self.reverse else "highest")

    @property
    def first_ref(self) -> int:
        """The position of the first Ref among the operands."""
        return self.num_consts + self.num_carry

    def place_of(self, aval: ir.Aval) -> tuple[int, ForParams]:
        """Where one more operand goes, and the params with it: a Ref before the Refs, a value after the constants."""
        if isinstance(aval, AbstractRef):
            return self.first_ref, self
        return self.num_consts, replace(self, num_consts=self.num_consts + 1)

    @property
    def names(self) -> list[str]:
        """The names of the operands."""
        return names_of(self.body.invars[1:])

    def name_of(self, v: ir.Var) -> str:
        """The name of the operand for an input of the body."""
        return self.names[self.body.invars.index(v) - 1]


for_p: ir.Primitive[ForParams] = ir.Primitive("for")


def for_abstract_eval(avals: ir.Avals, p: ForParams) -> ir.Typing:
    """The final states, and the body's effects on the Refs that are operands."""
    _check(avals, p)
    states = [a for a in avals[p.first_ref :] if not isinstance(a, AbstractRef)]

    def place(position: int) -> int | None:
        operand = position - 1
        return operand if operand >= 0 and isinstance(avals[operand], AbstractRef) else None

    return [*p.body.out_avals, *[a.strong() for a in states]], ir.map_positions(
        p.body.effects, place
    )


def for_typecheck(avals: ir.Avals, p: ForParams) -> ir.Typing:
    """The same of params that any equation may hold."""
    is_lanes = p.lanes is None or common.is_count(p.lanes)
    common.check_params(
        "for",
        ("nsteps", p.nsteps, common.is_count(p.nsteps), "an integer of at least 0"),
        ("reverse", p.reverse, isinstance(p.reverse, bool), "True or False"),
        ("unroll", p.unroll, common.is_count(p.unroll), "an integer of at least 0"),
        ("num_consts", p.num_consts, common.is_count(p.num_consts), "an integer of at least 0"),
        (
            "end",
            p.end,
            p.end in [None, *range(p.num_carry)],
            "None or the number of a carried value",
        ),
        ("counted", p.counted, p.counted in WHICH, f"one of {WHICH}"),
        ("slots", p.slots, is_slots(p.slots), "None, a schedule or an integer of at least 1"),
        ("lanes", p.lanes, is_lanes, "None or an integer of at least 0"),
    )
    return for_abstract_eval(avals, p)


def _check(avals: ir.Avals, p: ForParams) -> None:
    index, *binders = p.body.in_avals
    if len(avals) != len(binders) or index is not INDEX:
        raise TypeError(
            f"for: expected operands for {binders} after the counter {INDEX}, got {list(avals)}"
        )
    if p.counted and not (p.num_consts and binders[0].strong() is INDEX):
        raise TypeError(
            f"for: the first constant of a counted loop must be of type {INDEX}, got {binders[:1]}"
        )
    for k, (given, binder) in enumerate(zip(avals, binders, strict=True)):
        is_state = k >= p.first_ref and not isinstance(given, AbstractRef)
        want = AbstractRef(given) if is_state else given.strong()
        if binder.strong() is not want:
            raise TypeError(f"for: operand {k} of type {given} does not fit the body's {binder}")
    for given, out in zip(avals[p.num_consts : p.first_ref], p.body.out_avals, strict=True):
        if given.strong() is not out.strong():
            raise TypeError(f"for: a carried value of type {given} becomes {out} in the body")


def is_state(p: ForParams, operands: Sequence[ad.Operand | ir.Atom]) -> list[bool]:
    """Which operands are states: values that the body has as Refs."""
    is_ref = [isinstance(x.aval, AbstractRef) for x in operands]
    return [k >= p.first_ref and not r for k, r in enumerate(is_ref)]


def by_operand(
    p: ForParams, operands: Sequence[ad.Operand | ir.Atom], results: Sequence[T]
) -> list[T | None]:
    """For each operand what belongs to its final contents, of all `results`; None if it is no state."""
    finals = iter(results[p.num_carry :])
    return [next(finals) if state else None for state in is_state(p, operands)]


def stateful(p: ForParams) -> ForParams:
    """The same loop with its carried values as states.

    p.body : [i, *consts, *carry, *refs]      -> [*carry]
    body   : [i, *consts, *carry_refs, *refs] -> []
    """
    return replace(p, body=stateful_body(p.body, 1 + p.num_consts), end=None) if p.num_carry else p


@ir.once_per_jaxpr
def stateful_body(body: Jaxpr, start: int) -> Jaxpr:
    """A body with its carried values, from the input number `start` on, in Refs.

    body : [*ins, *carry, *refs]      -> [*carry]
    made : [*ins, *carry_refs, *refs] -> []
    """
    sizes = [start, len(body.outvars)]

    def run(*args: Value) -> list[Value]:
        ins, carried, refs = util.split_list(args, sizes)
        outs = transforms.eval_jaxpr(body, [*ins, *[ref[...] for ref in carried], *refs])
        for ref, out in zip(carried, outs, strict=True):
            ref[...] = out
        return []

    ins, carried, refs = util.split_list(body.in_avals, sizes)
    avals = [*ins, *map(AbstractRef, carried), *refs]
    return trace.stage_closed(run, avals, body.name, body.hints)


def first_step(p: ForParams, count: Value) -> Value | int:
    """The number of the first step that the loop takes; `count` is how many it takes, if it is counted."""
    if p.starts_late:
        return count - 1 if p.reverse else p.nsteps - count
    return p.nsteps - 1 if p.reverse else 0


def step_number(p: ForParams, i: Value, count: Value) -> Value:
    """How many steps come before the one in which the counter is `i`; `count` as for `first_step`."""
    first = first_step(p, count)
    if p.reverse:
        return first - i
    return i - first if p.starts_late else i


def end_flag(body: Jaxpr) -> ir.Var | None:
    """The Ref of a body, a bool scalar, that keeps a step from doing anything while it holds True; None without one.

    It is there if a body is a `cond` on what a Ref holds whose second branch is empty.
    """
    if body.outvars or not body.eqns or body.eqns[-1].primitive is not cond.cond_p:
        return None
    *before, choice = body.eqns
    branches = choice.params.branches
    if len(branches) != 2 or branches[1].eqns:
        return None
    made = ir.makers(body)
    number = ir.maker(choice.invars[0], made, prims.convert_p)
    read = number and ir.maker(number.invars[0], made, primitives.get_p)
    if read is None:
        return None
    flag = read.invars[0]
    if not isinstance(flag, ir.Var) or flag.aval.shape or flag.aval.dtype.kind != "b":
        return None
    return None if any(eqn.effects for eqn in before if eqn is not read) else flag


@ir.once_per_jaxpr
def without_end(body: Jaxpr) -> tuple[Jaxpr, int] | None:
    """The step that a body takes as long as a flag is not set, and the flag's position; None for any other body.

    body, step : [i, *consts, *refs] -> []
    """
    flag = end_flag(body)
    if flag is None:
        return None
    _, *operands = body.eqns[-1].invars
    step = body.eqns[-1].params.branches[0]
    inputs = dict(zip(operands, step.invars, strict=True))
    if len(inputs) < len(operands) or not inputs.keys() <= set(body.invars):
        return None  # one of them is computed in each step, or there twice
    invars = [inputs.get(v) or ir.Var(v.aval) for v in body.invars]
    for v, binder in zip(invars, body.invars, strict=True):
        v.hint = binder.hint
    return Jaxpr(invars, step.eqns, (), body.name), body.invars.index(flag)


def until_set(step: Jaxpr, flag: int) -> Jaxpr:
    """The step as a branch that is taken as long as the Ref at the position `flag` holds False.

    step, until_set : [i, *consts, *refs] -> []
    """
    skip = trace.stage_closed(lambda *args: [], step.in_avals, "ended")

    def run(*args: Value) -> list[Value]:
        has_ended = prims.convert(args[flag][...], INDEX.dtype)
        return trace.bind(cond.cond_p, has_ended, *args, params=cond.CondParams((step, skip)))

    return trace.stage_closed(run, step.in_avals, step.name, step.hints)


def until_all_are_set(step: Jaxpr, flags: int) -> Jaxpr:
    """The step of a batch until the flags of all lanes, in the Ref at the position `flags`, are set.

    step  : [i, *consts, *refs]       -> []
    given : [i, *consts, *refs, flag] -> []
    """

    def run(*args: Value) -> list[Value]:
        *given, flag = args
        transforms.eval_jaxpr(step, given)
        flag[...] = prims.reduce_and(given[flags][...])
        return []

    avals = [*step.in_avals, AbstractRef(predicate.PREDICATE)]
    until = trace.stage_closed(run, avals, step.name, [*step.hints, "all ended"])
    return until_set(until, len(step.in_avals))


@ir.once_per(lambda p: (p.body, p.nsteps, p.slots, p.end is None, p.counted, p.num_consts))
def early(p: ForParams) -> tuple[int, float]:
    """For how many steps, and in how many bytes, what all steps use may be made before them.

    These are few bytes if the user bounds the memory, or few beside all that the loop is given. What is stacked is no
    state.
    """
    may_end = p.end is not None or p.counted
    turns = p.nsteps // 16 if may_end else p.nsteps
    if p.slots is None:
        given = prims.bytes_of(p.body.in_avals)
        return turns, hlo.room_before_loops(given if ir.is_constant(given) else 0)
    carried = p.body.in_avals[1 + p.num_consts :]
    states = [a for a in carried if a.shape[:1] != (p.nsteps,)]
    return turns, room_beside(p.slots, states)

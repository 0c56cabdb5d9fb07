"""How a step of a replay is reversed: with the residuals of several steps, or from the states after it.

A step's residuals are what its backward pass needs of the forward states. Where a step reads and writes a few elements
of a large array, they are far smaller than the state: a replay that went back to a saved state for each step would copy
the array each time. And where a step is cheap, going back to a saved state costs more than the step. So consecutive
steps are taped together: run forward once, then reversed.

A backward step need not run the step forward again if it is given the states after that: the backward step of
`tanh(W @ x)` needs `x` and the result, which is the state after the step, and which the backward step of the next step
has just used.
"""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr, Value, errors, ir, prims, rules, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.core.ir.indexer import whole_indexer
from fiveloop.loops import store
from fiveloop.loops.primitives import slots
from fiveloop.loops.primitives.replay import ReplayParams
from fiveloop.state import AbstractRef, api, primitives

LEAST_SAVED = 64
"""The fewest operations of a step that the states after it must save; never fewer than the bytes that it copies."""


@dataclass(frozen=True, slots=True)
class After:
    """A step's backward pass with the states after it: those of the forward states with numbers in `places`.

    body : [k, *consts, *forward states, *backward states, *values of states after it]  -> []
    """

    body: Jaxpr
    places: tuple[int, ...]


@ir.once_per(lambda p: (p.backward, len(p.forward.invars)))
def back_alone(p: ReplayParams) -> Jaxpr:
    """The backward pass of a step, from the states before it; what it writes to these is of no use."""
    ends = p.backward.invars[len(p.forward.invars) :]
    return transforms.needed_body(p.backward, ends)


@ir.once_per(lambda p: (p.backward, p.forward, p.num_consts, p.lane_counts, p.slots))
def after_of(p: ReplayParams) -> After | None:
    """The backward pass of a step with the states after it; None if that saves no work, or if steps are taped."""
    if leaf_of(p) is not None:
        return None
    back = back_alone(p)
    if any(not isinstance(e, ir.PositionalEffect) for e in (*p.forward.effects, *back.effects)):
        # Each step is announced to be made once more for its backward pass: one may see it.
        return None
    _, states, ends = p.parts(back.invars[1:])
    writes = {k: w for k, ref in enumerate(states) if (w := _write(back, ref)) is not None}
    values = {k: ir.Var(states[k].aval.inner, states[k].hint) for k in writes}  # type: ignore[attr-defined]  # states are Refs
    names: dict[ir.Var, ir.Atom] = {}
    eqns: list[ir.Eqn] = []
    for k, write in writes.items():
        eqns += _given(back, p, write.invars[1], values[k], names)
    eqns += [ir.rename(eqn, names) for eqn in back.eqns if eqn not in writes.values()]
    invars = [*back.invars, *values.values()]
    body = transforms.needed_body(back.replace(invars=invars, eqns=eqns), ends)
    used = ir.used_by(body.eqns)
    kept = {k: v for k, v in values.items() if v in used}
    saved = transforms.body_work(back) - transforms.body_work(body)
    copied = sum(prims.bytes_of([v.aval]) for v in kept.values())
    if not kept or saved < max(copied, LEAST_SAVED):
        return None
    return After(body.replace(invars=[*back.invars, *kept.values()]), tuple(kept))


def _given(
    body: Jaxpr, p: ReplayParams, x: ir.Atom, given: ir.Var, names: dict[ir.Var, ir.Atom]
) -> list[ir.Eqn]:
    """Name a value that a step writes, and what it is made of by the choice of lanes, by the state after the step.

    A lane that does not make the step keeps its state, and what is computed for it from that is written nowhere.
    """
    made, eqns = ir.makers(body), list[ir.Eqn]()
    while True:
        names[x] = given  # type: ignore[index]  # what is written is a variable
        eqn = ir.maker(x, made)
        if eqn is not None and eqn.primitive is prims.transpose_p:
            perm = eqn.params.perm
            turned = ir.Var(eqn.invars[0].aval.strong())
            order = prims.TransposeParams(tuple(map(perm.index, range(len(perm)))))
            eqns.append(rules.new_eqn(prims.transpose_p, [given], order, [turned]))
            x, given = eqn.invars[0], turned
        elif eqn is not None and eqn.primitive is prims.select_p and _is_of_lanes(body, p, eqn):
            x = eqn.invars[1]
        else:
            return eqns


def _is_of_lanes(body: Jaxpr, p: ReplayParams, choice: ir.Eqn) -> bool:
    """Whether it chooses for the lanes that make the step."""
    made = ir.makers(body)

    def source(x: ir.Atom) -> ir.Eqn | ir.Atom:
        eqn = ir.maker(x, made)
        if eqn is None:
            return x
        spreads = eqn.primitive in (prims.broadcast_in_dim_p, prims.transpose_p)
        return source(eqn.invars[0]) if spreads else eqn

    test = source(choice.invars[0])
    if not isinstance(test, ir.Eqn) or test.primitive is not prims.less.prim:
        return False
    step, count = map(source, test.invars)
    return step is body.invars[0] and count in body.invars[1 : 1 + p.lane_counts]


def _write(body: Jaxpr, ref: ir.Var) -> ir.Eqn | None:
    """The equation that replaces all of a state by a value that the body makes; None if it is not the last use."""
    uses = ir.users(body).get(ref, ())
    changing = [eqn for eqn in uses if ref in ir.changed_refs(eqn)]
    if len(changing) != 1 or changing[0] is not uses[-1]:
        return None
    (write,) = changing
    if write.primitive is not primitives.swap_p or write.outvars:
        return None
    is_whole = write.params.indexer == whole_indexer(ref.aval.shape)
    return write if is_whole and write.invars[1] in ir.makers(body) else None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A step's backward pass cut in two, and how many steps are taped together.

    cut.known  : [k, *consts, *forward]                      -> [*residuals], and the step forward is made
    cut.staged : [*residuals, *those of k, consts, backward] -> []
    """

    cut: transforms.Split
    steps: int

    def reverse(
        self, first: Value, count: Value, ahead: Sequence[Value], back: Sequence[Value]
    ) -> None:
        """Reverse `count` steps from `first` on, which are no more than `steps`.

        `ahead` and `back` are the constants and states of the forward pass and of the backward pass.
        """
        cut = self.cut
        rows = [api.empty_ref((self.steps, *v.aval.shape), v.aval.dtype) for v in cut.residuals]

        def tape(j: Value) -> None:
            store.write_at(j, rows, transforms.eval_jaxpr(cut.known, [first + j, *ahead]))

        def untape(later: Value) -> None:
            j = count - 1 - later
            operands = util.select_by(cut.staged_in, [first + j, *ahead, *back])
            kept = [store.read_at(j, row) for row in rows]
            transforms.eval_jaxpr(cut.staged, [*kept, *operands])

        store.for_each(store.ZERO, count, tape)
        store.for_each(store.ZERO, count, untape)


_NO_TAPE = (
    "checkpoints={}: the steps of this loop cannot be taped, because the derivative of a step needs a Ref that later "
    "steps change; give a schedule without `tape`, or a number of slots"
)


@ir.once_per(lambda p: (p.backward, p.forward, p.num_consts, p.slots))
def leaf_of(p: ReplayParams) -> Leaf | None:
    """How steps of a replay are taped together; None if they are not."""
    plan = transforms.DEFAULT_PLAN.at_boundary(transforms.body_work(p.backward))
    num, back = len(p.forward.invars), p.num_backward
    unknown = (*[False] * num, *[True] * back)
    # The number of a step and the constants are at hand in the backward pass.
    at_hand = (*[True] * (1 + p.num_consts), *[False] * p.num_forward, *[True] * back)
    cut = transforms.split(p.backward, unknown, at_hand, plan)
    if any(isinstance(v.aval, AbstractRef) for v in cut.residuals) or any(cut.ref_unknown):
        if p.schedule.tape > 1:
            raise errors.RuleError(_NO_TAPE.format(p.schedule))
        return None
    kept = prims.bytes_of(v.aval for v in cut.residuals)
    state = prims.bytes_of(v.aval for v in p.forward.invars[1 + p.num_consts :])
    steps = slots.taped_steps(state, kept, p.slots, slots.contracts(p.forward))
    return Leaf(cut, steps) if steps > 1 else None

"""Backward steps that need not run the step forward again, because they are given the states after it.

The backward step of `tanh(W @ x)` needs `x` and the result. The result is the state after the step, and the backward
step of the next step has just used it.
"""

from __future__ import annotations

from fiveloop.core import Jaxpr, ir, prims, rules, transforms
from fiveloop.core.dataclass import dataclass
from fiveloop.core.ir.indexer import whole_indexer
from fiveloop.loops.leaf import leaf_of
from fiveloop.loops.primitives.replay import ReplayParams
from fiveloop.state import primitives

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

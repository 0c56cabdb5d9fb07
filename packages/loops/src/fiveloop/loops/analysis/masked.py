"""Steps of a loop over lanes that end at different steps: what a step does for a lane that has ended is undone.

It is undone by `select(going on, new, old)` of all that the loop carries. Of an array that is only indexed it is
enough to choose between elements: an update of a lane that has ended writes what is there.
"""

from __future__ import annotations

from fiveloop.core import engine
from fiveloop.core.engine import BroadcastParams, bitwise_and_p, broadcast_in_dim_p, select_p
from fiveloop.core.extend import Atom, Eqn, ShapedArray, Var, mutated_positions, new_eqn
from fiveloop.loops.analysis.array_access import Access, Made
from fiveloop.loops.primitives.while_loop import WhileParams
from fiveloop.state.engine import IndexParams, get_p, swap_p


def going_on(p: WhileParams) -> Var | None:
    """The carried value that says which lanes go on, where a step leaves all else of the others as it was."""
    made = engine.makers(p.body)
    carry = p.body.invars[p.num_consts : p.first_ref]
    pairs = [pair for pair in zip(carry, p.body.outvars, strict=True) if pair[0] is not pair[1]]
    writes = [eqn for eqn in p.body.eqns if mutated_positions(eqn.effects)]
    for going, out in pairs:
        if _is_and(out, going, made):
            others = [pair for pair in pairs if pair[0] is not going]
            undone = all(_is_undone(new, old, going, made) for old, new in others)
            if undone and all(_writes_back(eqn, going, made) for eqn in writes):
                return going
    return None


def _is_and(out: Atom, going: Var, made: Made) -> bool:
    eqn = made.get(out) if isinstance(out, Var) else None
    return eqn is not None and eqn.primitive is bitwise_and_p and going in eqn.invars


def _is_undone(out: Atom, old: Var, going: Var, made: Made) -> bool:
    eqn = made.get(out) if isinstance(out, Var) else None
    return eqn is not None and chooses(eqn, going, made) and eqn.invars[2] is old


def _writes_back(write: Eqn, going: Var, made: Made) -> bool:
    """Whether a write puts back what is there for lanes that have ended."""
    if write.primitive is not swap_p or not isinstance(write.invars[1], Var):
        return False
    choice = made.get(write.invars[1])
    if choice is None or not chooses(choice, going, made) or not isinstance(choice.invars[2], Var):
        return False
    read = made.get(choice.invars[2])
    place = [write.invars[0], *write.invars[2:]]
    if read is None or read.primitive is not get_p or list(read.invars) != place:
        return False
    same: bool = read.params.indexer == write.params.indexer
    return same


def chooses(eqn: Eqn, going: Var, made: Made) -> bool:
    """Whether an equation chooses between its second and its third operand by which lanes go on."""
    if eqn.primitive is not select_p:
        return False
    by = eqn.invars[0]
    maker = made.get(by) if isinstance(by, Var) else None
    if maker is not None and maker.primitive is broadcast_in_dim_p:
        lanes = tuple(range(going.aval.ndim))
        return maker.invars[0] is going and maker.params.dims == lanes
    return by is going


def mask(update: Access, going: Var) -> bool:
    """Let an update write what is there for each lane that has ended; False if it is no plain write, one lane a row."""
    *before, write = update.instead
    lanes = going.aval.shape
    if write.primitive is not swap_p or write.params.indexer.result_shape[: len(lanes)] != lanes:
        return False
    ref, x, *index = write.invars
    if x.aval.ndim != ref.aval.ndim:
        return False
    old, each, new = Var(x.aval), Var(ShapedArray(x.aval.shape, going.aval.dtype)), Var(x.aval)
    spread = BroadcastParams(x.aval.shape, tuple(range(len(lanes))))
    update.instead[:] = [
        *before,
        new_eqn(get_p, [ref, *index], IndexParams(write.params.indexer), [old], write.source),
        new_eqn(broadcast_in_dim_p, [going], spread, [each], write.source),
        new_eqn(select_p, [each, x, old], None, [new], write.source),
        new_eqn(swap_p, [ref, new, *index], write.params, (), write.source),
    ]
    return True

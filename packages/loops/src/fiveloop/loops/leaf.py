"""Consecutive steps of a replay with saved residuals: run forward once, then reversed.

A step's residuals are what its backward pass needs of the forward states. Where a step reads and writes a few elements
of a large array, they are far smaller than the state: a replay that went back to a saved state for each step would copy
the array each time. And where a step is cheap, going back to a saved state costs more than the step.
"""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Value, errors, ir, prims, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.loops import store
from fiveloop.loops.primitives import slots
from fiveloop.loops.primitives.replay import ReplayParams
from fiveloop.state import AbstractRef, api


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

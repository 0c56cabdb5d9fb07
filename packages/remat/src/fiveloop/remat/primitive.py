"""The primitive `checkpoint`: its params."""

from __future__ import annotations

from fiveloop.core import Jaxpr, extend, transforms
from fiveloop.core.dataclass import dataclass
from fiveloop.remat.budget.amount import Amount, Choice


@dataclass(frozen=True, eq=False)
class Origin(extend.Label):
    """The user's checkpoint that an equation comes from: the same for all halves of it, and no other's."""

    name: str

    def __repr__(self) -> str:
        return self.name


AGAIN = Origin("computed again")
"""That a checkpoint, whichever, has been computed again in a body: the next one is kept apart from it."""


@dataclass(frozen=True)
class CheckpointParams:
    """The jaxpr that is called, the policy of its residuals, and the checkpoint that it comes from.

    `recomputes` marks the half that recomputes the values that were not saved; XLA may merge that with the first
    computation unless `prevent_cse`. With a `budget` the jaxpr becomes one of checkpoints when it is split; `choice` is
    the plan. `unlabelled` are names in the policy that label nothing, unless custom rules in the jaxpr do so.
    """

    jaxpr: Jaxpr
    policy: transforms.Policy
    origin: Origin
    prevent_cse: bool = True
    recomputes: bool = False
    budget: Amount | None = None
    choice: Choice | None = None
    unlabelled: frozenset[str] = frozenset()


checkpoint_p: extend.Primitive[CheckpointParams] = extend.Primitive("checkpoint")


def in_checkpoint(params: CheckpointParams) -> Jaxpr:
    """A jaxpr that is one checkpoint."""
    eqn = extend.new_eqn(checkpoint_p, params.jaxpr.invars, params)
    return params.jaxpr.replace(eqns=[eqn], outvars=eqn.outvars)

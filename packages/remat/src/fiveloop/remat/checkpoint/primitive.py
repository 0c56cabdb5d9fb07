"""The primitive: a call with a policy."""

from __future__ import annotations

from dataclasses import dataclass

from fiveloop.core import Jaxpr, Policy
from fiveloop.core.extend import Label, Primitive


@dataclass(frozen=True, eq=False)
class Origin(Label):
    """The user's checkpoint that an equation comes from: the same for all halves of it, and no other's."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class CheckpointParams:
    """The jaxpr that is called, the policy of its residuals, and the checkpoint that it comes from.

    `recomputes` marks the half that computes again what was not saved.
    """

    jaxpr: Jaxpr
    policy: Policy
    origin: Origin
    recomputes: bool = False


checkpoint_p: Primitive[CheckpointParams] = Primitive("checkpoint")

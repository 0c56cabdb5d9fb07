"""The primitive: a call with a policy."""

from __future__ import annotations

from dataclasses import dataclass

from fiveloop.core import Jaxpr, Policy, Primitive


@dataclass(frozen=True)
class CheckpointParams:
    """The jaxpr that is called and the policy of its residuals.

    `origin` is the jaxpr that was checkpointed first: the same in all halves that come of it. `recomputes` marks
    the half that computes again what was not saved.
    """

    jaxpr: Jaxpr
    policy: Policy
    origin: Jaxpr
    recomputes: bool = False
    name: str = ""


checkpoint_p: Primitive[CheckpointParams] = Primitive("checkpoint")

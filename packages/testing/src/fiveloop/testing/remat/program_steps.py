"""The steps of random programs that checkpoint blocks, under every policy, and label values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from fiveloop.core import MinimumCut, Policy
from fiveloop.remat import (
    checkpoint,
    checkpoint_name,
    dots_saveable,
    everything_saveable,
    nothing_saveable,
    policies,
    save_only_these_names,
)
from fiveloop.testing.core.program_steps import Apply, draw_call_of
from fiveloop.testing.core.programs import Draw, Kinds, Scope, Step, define_operation, draw_use

POLICIES: dict[str, Policy] = {
    "everything": everything_saveable,
    "nothing": nothing_saveable,
    "dots": dots_saveable,
    "cut": MinimumCut(memory_cost=100.0, share=10.0),
    "names": save_only_these_names("kept"),
    "other names": policies.save_anything_except_these_names("kept") & ~dots_saveable,
    "offloaded": policies.offload_dot_with_no_batch_dims()
    | policies.save_any_names_but_these("other"),
    "every other": lambda eqn: len(eqn.primitive.name) % 2 == 0,
    "of a primitive": policies.dots_saveable | (lambda prim, *avals, **params: prim.name == "sin"),
    "first of": policies.first_of(
        lambda eqn: policies.PREFER_RECOMPUTE if eqn.primitive.name == "mul" else None,
        lambda eqn: policies.PREFER_SAVE if eqn.bytes > 24 else None,
        nothing_saveable,
    ),
}


def _under(policy: Policy) -> Callable[..., Any]:
    def call(fun: Callable[..., Sequence[Any]], args: Sequence[Any]) -> Sequence[Any]:
        checkpointed: Sequence[Any] = checkpoint(fun, policy=policy)(*args)
        return checkpointed

    return call


for _name, _policy in POLICIES.items():
    define_operation(f"checkpoint {_name}", _under(_policy), lambda fun, args: fun(*args))
define_operation("kept", lambda x: checkpoint_name(x, "kept"), lambda x: x)
define_operation("other", lambda x: checkpoint_name(x, "other"), lambda x: x)


def draw_name(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A label on a float."""
    use = draw_use(draw, scope)
    scope.floats.append(scope.floats[use.index])
    return Apply(draw(st.sampled_from(["kept", "other"])), (use,))


def draw_checkpoint(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A block under a checkpoint."""
    name = draw(st.sampled_from(sorted(POLICIES)))
    return draw_call_of(f"checkpoint {name}")(draw, scope, kinds)


def with_checkpoints(kinds: Kinds) -> Kinds:
    """Programs of these steps, and checkpoints."""
    return kinds.plus(draw_name, nested=(draw_checkpoint, draw_checkpoint))

"""The steps of random programs that checkpoint blocks, under policies and budgets, and label values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

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

Options: TypeAlias = "dict[str, Any]"

BUDGETS: dict[str, Options] = {
    "the least": {"budget": 0.0},
    "a part": {"budget": "40%"},
    "all": {"budget": 1.0},
    "bytes": {"budget": "1 GiB"},
    "a part, beside names": {"budget": 0.5, "policy": POLICIES["names"]},
    "the least, offloaded": {"budget": 0.0, "policy": POLICIES["offloaded"]},
}
"""Options of checkpoints, some with a policy whose verdicts are fixed first."""


def _with(options: Options) -> Callable[..., Any]:
    def call(fun: Callable[..., Sequence[Any]], args: Sequence[Any]) -> Sequence[Any]:
        checkpointed: Sequence[Any] = checkpoint(fun, **options)(*args)
        return checkpointed

    return call


OPTIONS: dict[str, Options] = {
    **{f"checkpoint {name}": {"policy": policy} for name, policy in POLICIES.items()},
    **{f"within {name}": options for name, options in BUDGETS.items()},
}
for _name, _options in OPTIONS.items():
    define_operation(_name, _with(_options), lambda fun, args: fun(*args))
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


def draw_budget(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A block within a budget."""
    return draw_call_of(f"within {draw(st.sampled_from(sorted(BUDGETS)))}")(draw, scope, kinds)


def with_checkpoints(kinds: Kinds) -> Kinds:
    """Programs of these steps, and checkpoints."""
    return kinds.plus(draw_name, nested=(draw_checkpoint, draw_checkpoint))


def with_budgets(kinds: Kinds) -> Kinds:
    """Programs of these steps, and blocks within budgets: planning one takes as long as ten laws."""
    return kinds.plus(nested=(draw_budget,))

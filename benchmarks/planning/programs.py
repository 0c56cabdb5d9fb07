"""The programs of the loops, under each choice that planning has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.model import Program
from benchmarks.planning.fitted import FITTED
from benchmarks.planning.held_out import HELD_OUT
from benchmarks.planning.loops import Loop
from fiveloop.core import jit
from fiveloop.core.pytree import tree_leaves
from fiveloop.loops import planning
from fiveloop.loops.options import STEPS
from fiveloop.remat import checkpoint, policies

SAVED = "everything saved"
CHOICES = (*(f"without {step}" for step in STEPS), SAVED)
GROUPS = {"fitted": FITTED, "held out": HELD_OUT}


def build(group: str, name: str, choice: str, size: int) -> Program:
    """One loop under one choice; an error says so where the choice makes no difference to the program."""
    loop = GROUPS[group][name]
    args = loop.args()
    chosen = under(loop, choice)
    if choice != "planned" and text(chosen, args) == text(under(loop, "planned"), args):
        raise ValueError("the same program as with all steps")
    return Program(chosen, args)


def text(fun: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The lowered program."""
    return str(jit(fun).lower(*args).as_text())


def under(loop: Loop, choice: str) -> Callable[..., dict[str, Any]]:
    """The function of a loop, traced under a choice; its results by number."""
    fun = loop.function(saving if choice == SAVED else lambda fun: fun)
    step = choice.removeprefix("without ")
    steps = {step: False} if step in STEPS else {}

    def run(*args: Any) -> dict[str, Any]:
        with planning(**steps):
            return {str(k): x for k, x in enumerate(tree_leaves(fun(*args)))}

    return run


def saving(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose derivative saves whatever it uses."""
    return checkpoint(fun, policy=policies.everything_saveable)

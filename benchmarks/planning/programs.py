"""The programs of the loops, under each choice that planning has."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.model import Program
from benchmarks.planning.loops import total
from fiveloop.core import grad, jit
from fiveloop.core.pytree import tree_leaves
from fiveloop.loops import planning
from fiveloop.loops.options import STEPS
from fiveloop.remat import checkpoint, policies


def build(group: str, name: str, form: str, choice: str, size: int) -> Program:
    """One loop under one choice; an error says so where the choice makes no difference to the program."""
    fun, args = getattr(import_module(f"benchmarks.planning.{group}"), name)()
    chosen, planned = under(fun, form, choice), under(fun, form, "planned")
    if choice != "planned" and text(chosen, args) == text(planned, args):
        raise ValueError("the same program as with all steps")
    return Program(chosen, tuple(args))


def text(fun: Callable[..., Any], args: Any) -> str:
    """The lowered program."""
    return str(jit(fun).lower(*args).as_text())


def under(fun: Callable[..., Any], form: str, choice: str) -> Callable[..., dict[str, Any]]:
    """A loop, or the gradient of the sum of its results, traced under a choice; the results are named by number."""
    if choice == "everything saved":
        fun = checkpoint(fun, policy=policies.everything_saveable)
    chosen = grad(lambda *args: total(fun(*args))) if form == "gradient" else fun
    step = choice.removeprefix("without ")

    def run(*args: Any) -> dict[str, Any]:
        with planning(**({step: False} if step in STEPS else {})):
            return {str(k): x for k, x in enumerate(tree_leaves(chosen(*args)))}

    return run

"""Jaxprs that are called alike: one, or several of which the operands before theirs choose one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fiveloop.core import ir, util

P = TypeVar("P")
Change = Callable[[ir.Jaxpr, bool | util.Mask], tuple[ir.Jaxpr, util.Mask]]
"""From a jaxpr, and a mask that has to hold, to another jaxpr and the mask that does hold."""


def num_choosing(p: object, operands: Sequence[object]) -> int:
    """How many operands come before those that every jaxpr takes."""
    return len(operands) - len(ir.jaxprs_in(p)[0].invars)


def changed_alike(p: P, change: Change) -> tuple[P, util.Mask]:
    """Params with each jaxpr changed, and one mask for all: it holds where it holds for some jaxpr."""
    masks = [change(jaxpr, False)[1] for jaxpr in ir.jaxprs_in(p)]
    joined = tuple(any(marks) for marks in zip(*masks, strict=True))
    return ir.with_jaxprs(p, lambda j: change(j, joined if len(masks) > 1 else False)[0]), joined

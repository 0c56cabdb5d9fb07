"""The primitive `progress`: an equation in a loop's body which says that the loop shows its progress."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fiveloop.core import ir
from fiveloop.core.dataclass import dataclass

COUNT = ir.ShapedArray((), np.int32)


@dataclass(frozen=True)
class ProgressEffect(ir.Effect):
    """A loop shows its progress: once, by the loop that computes values; not for each lane, and not in a replay."""

    may_fail: ClassVar[bool] = True


@dataclass(frozen=True)
class MarkParams:
    """A bar, by its text and by after how many steps it is brought up to date.

    operands : [] or [number of steps]
    """

    desc: str | None
    every: int | None


mark_p: ir.Primitive[MarkParams] = ir.Primitive("progress")


def mark_abstract_eval(avals: ir.Avals, p: MarkParams) -> ir.Typing:
    """No results, and the effect."""
    if [a.strong() for a in avals] not in ([], [COUNT]):
        raise TypeError(f"progress: expected no operand or a number of steps, got {list(avals)}")
    return [], frozenset([ProgressEffect()])

"""The three effects on a Ref: reading it, writing it, and accumulating into it."""

from __future__ import annotations

from typing import ClassVar

from fiveloop.core import ir
from fiveloop.core.dataclass import dataclass


@dataclass(frozen=True)
class ReadEffect(ir.PositionalEffect):
    """The Ref at a position is read; an equation that only reads may be dropped, or done again."""

    droppable: ClassVar[bool] = True
    recomputable: ClassVar[bool] = True


@dataclass(frozen=True)
class WriteEffect(ir.PositionalEffect):
    """The Ref at a position is overwritten."""

    mutates: ClassVar[bool] = True


@dataclass(frozen=True)
class AccumEffect(ir.PositionalEffect):
    """The Ref at a position is accumulated into; accumulations under the same monoid commute, no others do."""

    monoid: str = "add"
    mutates: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True

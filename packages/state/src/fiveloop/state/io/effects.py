"""The effects of calling Python: with or without side effects, unordered or in the order of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from fiveloop.core import Value, arrays, ir
from fiveloop.core.dataclass import dataclass
from fiveloop.state.handlers import HandledEffect


@dataclass(frozen=True)
class PureCallEffect(ir.Effect):
    """A Python function is called that has no effect, but may fail; it may be left out, or called again."""

    droppable: ClassVar[bool] = True
    recomputable: ClassVar[bool] = True
    may_fail: ClassVar[bool] = True


@dataclass(frozen=True)
class IOEffect(ir.Effect):
    """A Python function is called that may do anything: neither left out nor called again, and for every lane."""

    may_fail: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True
    lanes_differ: ClassVar[bool] = True


@dataclass(frozen=True)
class OrderedIOEffect(HandledEffect):
    """As `IOEffect`, and such calls keep their order: through a hidden Ref each hands a token on to the next."""

    ordered: ClassVar[bool] = True
    may_fail: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True
    lanes_differ: ClassVar[bool] = True

    @classmethod
    def initial(cls, effects: Sequence[Self]) -> Value:
        """The token of a program's first call."""
        return arrays.Scalar(np.asarray(0, np.int32))

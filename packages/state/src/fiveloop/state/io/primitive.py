"""The primitive `callback`: its params, types and effects, unordered or in the order of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self
from typing import Literal as OneOf

import numpy as np

from fiveloop.core import Value, arrays, ir, prims
from fiveloop.core.dataclass import dataclass
from fiveloop.state.handlers import HandledEffect
from fiveloop.state.io import host


@dataclass(frozen=True)
class PureCallEffect(ir.Effect):
    """A Python function without side effects is called, which may raise; the call may be left out or made again."""

    droppable: ClassVar[bool] = True
    recomputable: ClassVar[bool] = True
    may_fail: ClassVar[bool] = True


@dataclass(frozen=True)
class IOEffect(ir.Effect):
    """A Python function with side effects is called, exactly once for each lane; the call is never left out."""

    may_fail: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True
    lanes_differ: ClassVar[bool] = True


@dataclass(frozen=True)
class OrderedIOEffect(HandledEffect):
    """As `IOEffect`; these calls keep their order, as each passes a token to the next through a hidden Ref."""

    ordered: ClassVar[bool] = True
    may_fail: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True
    lanes_differ: ClassVar[bool] = True

    @classmethod
    def initial(cls, effects: Sequence[Self]) -> Value:
        """The token of a program's first call."""
        return arrays.Scalar(np.asarray(0, np.int32))


CallKind = OneOf["pure", "io", "ordered"]
TOKEN = ir.ShapedArray((), np.int32)
_KINDS = {"pure": PureCallEffect, "io": IOEffect, "ordered": OrderedIOEffect}


@dataclass(frozen=True)
class Batch:
    """One batching of a call: the number of lanes, and which operands have them, in front."""

    size: int
    batched: tuple[bool, ...]


@dataclass(frozen=True)
class CallbackParams:
    """A call of a Python function.

    operands : [token if has_token, condition if conditional, *arrays]
    results  : [token if has_token, *results]

    `avals` are the types of one lane's results. `batches` come innermost first; the axes of operands and results
    come outermost first. A call whose condition does not hold is not made, and gives zeros. If it is `stacked`, all
    lanes are one call.
    """

    call: host.HostCall
    avals: tuple[ir.ShapedArray, ...]
    kind: CallKind = "io"
    stacked: bool = False
    conditional: bool = False
    has_token: bool = False
    batches: tuple[Batch, ...] = ()

    @property
    def lead(self) -> tuple[int, ...]:
        """The sizes of the batches, outermost first."""
        return tuple(b.size for b in reversed(self.batches))


callback_p: ir.Primitive[CallbackParams] = ir.Primitive("callback")


def callback_abstract_eval(avals: ir.Avals, p: CallbackParams) -> ir.Typing:
    """The types announced, for all lanes; the effect that the call was said to have."""
    for k, aval in enumerate(avals):
        prims.array_aval("callback", aval, f"operand {k}")
    tokens = [TOKEN] if p.has_token else []
    outs = [ir.ShapedArray((*p.lead, *a.shape), a.dtype) for a in p.avals]
    return [*tokens, *outs], frozenset([_KINDS[p.kind]()])

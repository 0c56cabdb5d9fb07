"""How values of the plain array type behave: their zeros, sums, indexing and buffers."""

from __future__ import annotations

from typing import Any, NoReturn

from fiveloop.core.array import OPS, Value, to_array
from fiveloop.core.backend.client import Buffer
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.primitives.broadcast import zeros_of
from fiveloop.core.primitives.elementwise_arithmetic import add
from fiveloop.core.rules import TypeRules, define_type


def _getitem(x: Any, index: Any) -> Any:
    return OPS["getitem"](x, index)


def _setitem(x: Any, index: Any, value: Any) -> None:
    OPS["setitem"](x, index, value)


def _buffer(x: Value) -> Buffer:
    return to_array(x).buffer


def _own_buffer(x: Any) -> NoReturn:
    raise AssertionError("unreachable: an array is never updated in place")


def _write_back(x: Any, new: Value) -> NoReturn:
    raise AssertionError("unreachable: an array is never written to")


def _turn(x: Any) -> NoReturn:
    raise AssertionError("unreachable: an array never changes")


define_type(
    ShapedArray,
    TypeRules(
        zeros=zeros_of,
        add=add,
        getitem=_getitem,
        setitem=_setitem,
        buffer=_buffer,
        own_buffer=_own_buffer,
        write_back=_write_back,
        turn=_turn,
    ),
)

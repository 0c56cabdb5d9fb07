"""The operators and methods of arrays as fused calls; other values, and calls that fail, use those of `Value`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from types import FunctionType
from typing import Any

from fiveloop.core import arrays, trace
from fiveloop.core.trace.fused import Numbers

BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}
UNARY = {"neg": "negative", "abs": "abs", "invert": "bitwise_invert"}
"""The names of operators, and of the functions behind them."""

STATIC: dict[str, Numbers] = {"power": "static"}
"""An integer exponent says what is computed."""


def _reflected(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: call(y, x)


def _iadd(x: arrays.Array, y: Any) -> Any:
    """`x += y`, which is a step of `ref[i] += y` if `x` was read there."""
    return _add(x, y) if x._note is None else arrays.Value.__iadd__(x, y)


for _operator, _name in (BINARY | COMPARISONS | UNARY).items():
    _otherwise = vars(arrays.Value)[f"__{_operator}__"]
    _numbers = STATIC.get(_name)
    _call = trace.fused(arrays.OPS[_name], numbers=_numbers, otherwise=_otherwise)
    setattr(arrays.Array, f"__{_operator}__", _call)
    if _operator in BINARY:
        _otherwise = _reflected(vars(arrays.Value)[f"__r{_operator}__"])
        _call = trace.fused(arrays.OPS[_name], numbers=_numbers, otherwise=_otherwise)
        setattr(arrays.Array, f"__r{_operator}__", _reflected(_call))

_add = vars(arrays.Array)["__add__"]
arrays.Array.__iadd__ = _iadd  # type: ignore[assignment]  # for arrays alone

PROMOTES: dict[str, Numbers] = {"clip": "operands", "dot": "operands"}
ONE_BY_ONE = ("copy", "nonzero")
"""Methods whose numbers are operands, and those that are no program."""

for _name, _method in vars(arrays.Methods).items():
    if isinstance(_method, property) and _method.fget and _name != "at":
        setattr(arrays.Array, _name, property(trace.fused(_method.fget), doc=_method.__doc__))
    elif isinstance(_method, FunctionType) and _name[0] != "_" and _name not in ONE_BY_ONE:
        _call = trace.fused(unwrap(_method), numbers=PROMOTES.get(_name), otherwise=_method)
        setattr(arrays.Array, _name, _call)

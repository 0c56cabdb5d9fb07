"""The primitive: a call of a jaxpr, kept as one equation."""

from __future__ import annotations

from typing import Any

from fiveloop.core import ir
from fiveloop.core.dataclass import dataclass, field


@dataclass(frozen=True)
class ClosedCallParams:
    """The jaxpr that is called: `[*operands] -> [*results]`; a jit is a call with `inline` False."""

    jaxpr: ir.Jaxpr
    name: str = field(default="", compare=False)
    inline: bool = False


closed_call_p: ir.Primitive[ClosedCallParams] = ir.Primitive("closed_call")


def call_abstract_eval(avals: ir.Avals, p: Any) -> ir.Typing:
    """The types and effects of the jaxpr; TypeError if the operands do not fit its inputs.

    For any primitive that calls `p.jaxpr`, as its cell `abstract_eval`.

    >>> p = ClosedCallParams(make_jaxpr(lambda x: x.sum())(np.ones(3)))
    >>> call_abstract_eval([ShapedArray((3,), np.float64)], p)
    ([f64[]], frozenset())
    >>> call_abstract_eval([ShapedArray((4,), np.float64)], p)
    Traceback (most recent call last):
    TypeError: ClosedCall: operand 0 must be f64[3], got f64[4]
    """
    check_operands(type(p).__name__.removesuffix("Params"), avals, p.jaxpr)
    return p.jaxpr.out_avals, p.jaxpr.effects


def check_operands(what: str, avals: ir.Avals, jaxpr: ir.Jaxpr) -> None:
    """Raise TypeError if operands do not have the types of a jaxpr's inputs, weakness aside."""
    wanted = jaxpr.in_avals
    if len(avals) != len(wanted):
        raise TypeError(f"{what}: expected {len(wanted)} operands, got {len(avals)}")
    for i, (given, want) in enumerate(zip(avals, wanted, strict=True)):
        if given.strong() is not want.strong():
            raise TypeError(f"{what}: operand {i} must be {want}, got {given}")

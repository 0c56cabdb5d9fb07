"""How jaxprs print."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from fiveloop.core.arrays.array import Scalar
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.ir.jaxpr import NO_PARAMS, Eqn, Jaxpr, Literal, PositionalEffect, Primitive, Var
from fiveloop.core.ir.pretty import Names, define_printer, format_jaxpr, format_params
from fiveloop.core.ir.source import Source

VECTOR = ShapedArray((3,), "float32")
SCALAR = ShapedArray((), "float32")
SIN: Primitive[Any] = Primitive("sin")


class FakeArray:
    """Stands for an array on the device, of which the printer needs only the type."""

    aval = VECTOR


@dataclass(frozen=True)
class ReadEffect(PositionalEffect):
    pass


@dataclass(frozen=True)
class AddEffect(PositionalEffect):
    monoid: str = "add"


@dataclass(frozen=True)
class CallParams:
    body: Jaxpr
    axis: int = 0
    dtype: Any = None
    shape: tuple[int, ...] = ()


def number(x: Any, weak: bool = False) -> Literal:
    return Literal(Scalar(np.asarray(x), weak))


def text(jaxpr: Jaxpr) -> str:
    return "\n" + str(jaxpr) + "\n"


def test_straight_line() -> None:
    x, y, z = Var(VECTOR), Var(VECTOR), Var(VECTOR)
    mul: Primitive[Any] = Primitive("mul")
    eqns = [
        Eqn(SIN, [x], [y], NO_PARAMS),
        Eqn(mul, [y, number(np.float32(0.1), weak=True)], [z], NO_PARAMS),
    ]
    assert text(Jaxpr([x], eqns, [z])) == dedent("""
        { lambda a:f32[3] ; let
            b:f32[3] = sin a
            c:f32[3] = mul b 0.1*
          in (c,) }
        """)


def test_without_equations() -> None:
    x, y = Var(VECTOR), Var(SCALAR)
    assert str(Jaxpr([x, y], [], [x])) == "{ lambda a:f32[3] _:f32[] ; let in (a,) }"
    assert str(Jaxpr([], [], [])) == "{ lambda ; let in () }"


@pytest.mark.parametrize(
    ("literal", "shown"),
    [
        (number(np.float32(2)), "2.0"),
        (number(np.float32(2), weak=True), "2.0*"),
        (number(np.float64(0.1)), "0.1:f64"),
        (number(np.int32(-3)), "-3"),
        (number(np.uint8(3)), "3:u8"),
        (number(np.bool_(True)), "True"),
    ],
)
def test_numbers(literal: Literal, shown: str) -> None:
    assert Names(()).atom(literal) == shown


def test_nested_with_constants_and_effects() -> None:
    b, c = Var(VECTOR), Var(VECTOR)
    reads = frozenset([ReadEffect(0), AddEffect(0), AddEffect(0, "max")])
    inner = Jaxpr([b], [Eqn(SIN, [b], [c], NO_PARAMS, reads)], [c])
    x, y, unused = Var(VECTOR), Var(VECTOR), Var(SCALAR)
    const = Literal(FakeArray())
    call: Primitive[Any] = Primitive("call")
    params = CallParams(inner, 3, np.dtype("float32"), (2,))
    eqn = Eqn(call, [x, const, const], [y, unused], params, frozenset([ReadEffect(0)]))
    assert text(Jaxpr([x], [eqn], [y])) == dedent("""
        { lambda a:f32[3] ; consts c0:f32[3] ; Read<a> ; let
            b:f32[3] _:f32[] = call[axis=3 dtype=f32 shape=(2,)] a c0 c0
              body { lambda c:f32[3] ; Add<c, max> Add<c> Read<c> ; let
                  d:f32[3] = sin c ! Add<c, max> Add<c> Read<c>
                in (d,) }
          in (b,) }
        """)
    assert str(eqn).startswith(
        "b:f32[3] c:f32[] = call[axis=3 dtype=f32 shape=(2,)] a c0 c0\n  body { lambda"
    )


def test_custom_printer() -> None:
    read: Primitive[Any] = Primitive("read_all")
    define_printer(
        read,
        lambda eqn, names: f"{names.binder(eqn.outvars[0])} <- {names.atom(eqn.invars[0])}[...]",
    )
    x, y = Var(VECTOR), Var(VECTOR)
    assert str(Eqn(read, [x], [y], NO_PARAMS, frozenset([ReadEffect(0)]))) == "b:f32[3] <- a[...]"


def test_long_lines_wrap() -> None:
    binders = [Var(VECTOR) for _ in range(30)]
    printed = str(Jaxpr(binders, [Eqn(SIN, binders, [], NO_PARAMS)], []))
    assert max(map(len, printed.splitlines())) <= 104
    assert "z:f32[3]" in printed
    assert "ad:f32[3]" in printed


def test_source_lines() -> None:
    x, y = Var(VECTOR), Var(VECTOR)
    code = test_source_lines.__code__
    jaxpr = Jaxpr([x], [Eqn(SIN, [x], [y], NO_PARAMS, source=Source(code, 0))], [y])
    assert f"sin a  # {__file__}" in format_jaxpr(jaxpr, source=True)
    assert "#" not in format_jaxpr(jaxpr)


def test_params_skip_defaults_and_jaxprs() -> None:
    assert format_params(NO_PARAMS) == ""
    assert format_params(CallParams(Jaxpr([], [], []))) == ""
    assert format_params(CallParams(Jaxpr([], [], []), axis=1), skip=["axis"]) == ""

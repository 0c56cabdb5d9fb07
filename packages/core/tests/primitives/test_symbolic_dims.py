"""Every row is traced with one dim that is no number."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import (
    Jaxpr,
    all_gather,
    all_to_all,
    axis_index,
    closed_call,
    custom_jvp,
    custom_vjp,
    ds,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    pmax,
    pmin,
    ppermute,
    psum,
    psum_scatter,
    tree_leaves,
)
from fiveloop.core.extend import ShapedArray, as_value, stage, typecheck
from fiveloop.core.ir.avals import SymbolicDim
from fiveloop.core.primitives.broadcast import broadcast_in_dim, reshape
from fiveloop.core.primitives.dot import matmul
from fiveloop.core.primitives.shape import iota, split
from fiveloop.core.primitives.special import cos, sin
from fiveloop.testing.core.misuse import raised
from fiveloop.testing.core.primitive_samples import Case, core_cases

grad: Any = core.grad
vmap: Any = core.vmap

WRITE_SIZES = {"broadcast_in_dim", "dot_general", "iota", "put", "reshape", "split", "take"}
"""Samples of these write the size of the axis that is made symbolic as a number; `SYMBOLIC` has others."""
NEEDS_A_NUMBER = ("pad", 1)
"""The sample that puts something between the elements: if there are none, it puts nothing."""


class Dim(SymbolicDim):
    """An unknown size, or an expression of one."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text

    def __mul__(self, other: Any) -> Dim:
        return self if isinstance(other, int) and other == 1 else Dim(f"({self}*{other})")

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Dim:
        return self if isinstance(other, int) and other == 0 else Dim(f"({self}+{other})")

    __radd__ = __add__

    def __bool__(self) -> bool:
        raise TypeError("a dim that is no number was asked for a bool")

    def __index__(self) -> int:
        raise TypeError("a dim that is no number was asked for a number")


N: Any = Dim("n")


def symbolic(args: tuple[Any, ...]) -> list[ShapedArray]:
    """The types of arguments with the largest leading size made symbolic."""
    values = [as_value(x) for x in args]
    longest = max((x.shape[0] for x in values if x.shape), default=0)
    return [
        ShapedArray((N, *x.shape[1:]) if x.shape and x.shape[0] == longest else x.shape, x.dtype)
        for x in values
    ]


def traced(case: Case) -> Jaxpr:
    _, fun, args = case
    return stage(lambda *xs: tree_leaves(fun(*xs)), symbolic(args)).jaxpr


SYMBOLIC: dict[str, Case] = {
    name: (name, fun, (np.ones((5, 3)),))
    for name, fun in {
        "broadcast_in_dim": lambda x: broadcast_in_dim(x, (4, N, 3), (1, 2)),
        "dot_general": lambda x: matmul(x, np.ones((3, 4))),
        "iota": lambda x: x * iota(np.float64, (N, 3), 0),
        "reshape": lambda x: reshape(x, (N * 3,)),
        "split": lambda x: split(x, [1, 2], 1),
        "take": lambda x: (x[:, 1:], x[:, np.array([2, 0])], x[:, ds(1, 2)]),
        "put": lambda x: (x.at[:, 1:].set(0.0), x.at[:, np.array([2, 0])].add(1.0)),
    }.items()
}


def numbered() -> list[tuple[tuple[str, int], Case]]:
    """The samples, each with its row and its number there."""
    count: Counter[str] = Counter()
    found = []
    for case in core_cases():
        found.append(((case[0], count[case[0]]), case))
        count[case[0]] += 1
    return found


TRACED = [c for k, c in numbered() if c[0] not in WRITE_SIZES and k != NEEDS_A_NUMBER]


@pytest.mark.parametrize("case", [*TRACED, *SYMBOLIC.values()], ids=lambda case: str(case[0]))
def test_a_row_is_traced(case: Case) -> None:
    typecheck(traced(case))


def test_every_row_is_among_them() -> None:
    assert {name for name, *_ in core_cases()} == {
        name for name, *_ in (*TRACED, *SYMBOLIC.values())
    }


@pytest.mark.parametrize("name", sorted({*WRITE_SIZES, NEEDS_A_NUMBER[0]}))
def test_no_row_is_listed_for_nothing(name: str) -> None:
    def all_of_them() -> None:
        for case in core_cases():
            if case[0] == name:
                typecheck(traced(case))

    assert isinstance(raised(all_of_them), (TypeError, ValueError))


def by_jvp(x: Any) -> Any:
    f = custom_jvp(sin)
    f.defjvp(lambda primals, tangents: (sin(primals[0]), cos(primals[0]) * tangents[0]))
    return f(x)


def by_vjp(x: Any) -> Any:
    f = custom_vjp(sin)
    f.defvjp(lambda x: (sin(x), x), lambda x, ct: (cos(x) * ct,))
    return f(x)


@pytest.mark.parametrize("call", [closed_call(sin), jit(sin), by_jvp, by_vjp])
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        lambda f: grad(lambda x: f(x).sum()),
        lambda f: lambda x: jvp(f, (x,), (x,)),
        lambda f: lambda x: linearize(f, x)[1](x),
        lambda f: vmap(f, in_axes=1),
    ],
)
def test_calls_are_traced_and_transformed(call: Any, transform: Any) -> None:
    x = ShapedArray((N, 3), np.float32)
    made = stage(lambda x: tree_leaves(transform(call)(x)), [x]).jaxpr
    typecheck(made)
    assert N in {d for a in made.out_avals for d in a.shape}


@pytest.mark.parametrize(
    "collective",
    [
        lambda x: psum(x, "i"),
        lambda x: psum(x, "i", axis_index_groups=[[0, 2], [1, 3]]),
        lambda x: pmax(x, "i"),
        lambda x: pmin(x, "i"),
        lambda x: ppermute(x, "i", [(0, 1), (1, 0)]),
        lambda x: all_gather(x, "i"),
        lambda x: all_to_all(x, "i", 0, 1),
        lambda x: psum_scatter(x, "i"),
        lambda x: x * axis_index("i"),
    ],
)
def test_collectives_are_traced(collective: Any) -> None:
    named = make_jaxpr(collective, axis_env=[("i", 4)])(ShapedArray((4, N), np.float32))
    typecheck(named)
    x = ShapedArray((4, 4, N), np.float32)
    typecheck(stage(lambda x: [vmap(collective, axis_name="i")(x)], [x]).jaxpr)
    assert N in named.out_avals[0].shape


def test_a_shape_prints_its_dims() -> None:
    x = ShapedArray((N, 3), np.float32)
    assert str(x) == "f32[n,3]"
    again: Any = Dim("n")
    assert x is ShapedArray((again, 3), np.float32)

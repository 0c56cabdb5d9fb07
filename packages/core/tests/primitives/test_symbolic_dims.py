"""Every row is traced with one dim that is no number; those that need a number of it are listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import Jaxpr, ShapedArray, as_value, stage, tree_leaves, typecheck
from fiveloop.core.dims import SymbolicDim
from fiveloop.core.testing.misuse import raised
from fiveloop.core.testing.primitive_samples import Case, core_cases

NEED_A_NUMBER = {
    "argmin",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather",
    "pad",
    "scatter",
    "slice",
}
"""These compare a size with a number: with an index, with the size of a window, with zero."""
MIX_SIZES = {"broadcast_in_dim", "dot_general", "iota", "reshape", "split"}
"""Some of their samples write the size of the axis that is made symbolic as a number."""


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


@pytest.mark.parametrize(
    "case",
    [case for case in core_cases() if case[0] not in NEED_A_NUMBER | MIX_SIZES],
    ids=lambda case: str(case[0]),
)
def test_a_row_is_traced(case: Case) -> None:
    typecheck(traced(case))


@pytest.mark.parametrize("name", sorted(NEED_A_NUMBER | MIX_SIZES))
def test_no_row_is_listed_for_nothing(name: str) -> None:
    def all_of_them() -> None:
        for case in core_cases():
            if case[0] == name:
                typecheck(traced(case))

    assert isinstance(raised(all_of_them), (TypeError, ValueError))


def test_a_shape_prints_its_dims() -> None:
    x = ShapedArray((N, 3), np.float32)
    assert str(x) == "f32[n,3]"
    again: Any = Dim("n")
    assert x is ShapedArray((again, 3), np.float32)

"""Contractions whose axes are merged, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from string import ascii_lowercase

import numpy as np
import pytest

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue

Program = Callable[..., list[np.ndarray]]
SIZES = dict(zip("abcde", (2, 3, 4, 5, 6), strict=True))
RNG = np.random.default_rng(0)


def operand(labels: str) -> np.ndarray:
    return RNG.integers(-3, 4, size=[SIZES[k] for k in labels]).astype(np.float32)


def axes(labels: str, wanted: str) -> tuple[int, ...]:
    return tuple(labels.index(k) for k in wanted)


def result(x: str, y: str, batch: str, contract: str) -> str:
    used = {*batch, *contract}
    return batch + "".join(k for k in x + y if k not in used)


CASES = [
    ("".join(x), "".join(y), batch, contract)
    for x in permutations("abc")
    for y in permutations("abd")
    for batch, contract in (("", "ab"), ("", "ba"), ("a", "b"))
]
CASES += [("abcd", "abe", "", "ab"), ("abcd", "eabc", "", "cba"), ("abcde", "ab", "ab", "")]
CASES += [("cabd", "abe", "", "ab"), ("abcde", "badec", "e", "abcd"), ("abc", "dcab", "a", "bc")]


def test_every_way_to_contract_two_axes(program: Program) -> None:
    def write(b: Builder, *values: IRValue) -> list[IRValue]:
        pairs = zip(values[::2], values[1::2], CASES, strict=True)
        return [
            hlo.dot_general(
                b, u, v, axes(x, batch), axes(y, batch), axes(x, contract), axes(y, contract), "f4"
            )
            for u, v, (x, y, batch, contract) in pairs
        ]

    arrays = [operand(labels) for x, y, _, _ in CASES for labels in (x, y)]
    outs = program(write, *arrays)
    for case, u, v, out in zip(CASES, arrays[::2], arrays[1::2], outs, strict=True):
        x, y, batch, contract = case
        want = np.einsum(f"{x},{y}->{result(x, y, batch, contract)}", u, v)
        np.testing.assert_array_equal(out, want, err_msg=str(case))


@pytest.mark.parametrize(
    ("x", "y", "contract", "reshapes"),
    [
        ("abc", "abd", "ab", 2),  # rows of all steps: both are merged, and neither is transposed
        ("cab", "abd", "ab", 0),  # as matrices lie
        ("ab", "ac", "a", 0),  # nothing to merge
        ("abc", "ad", "a", 2),  # free axes behind a contracted one, and apart again in the result
    ],
)
def test_axes_side_by_side_are_one(x: str, y: str, contract: str, reshapes: int) -> None:
    b = Builder("test")

    def body(args: list[IRValue]) -> list[IRValue]:
        u, v = args
        return [hlo.dot_general(b, u, v, (), (), axes(x, contract), axes(y, contract), "f4")]

    b.function("main", [(operand(k).shape, np.float32) for k in (x, y)], public=True, body=body)
    assert set(x + y) <= set(ascii_lowercase)
    assert b.text().count("stablehlo.reshape") == reshapes
    assert "transpose" not in b.text()

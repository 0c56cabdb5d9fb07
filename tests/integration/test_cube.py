"""The cube: every higher-order primitive, on a Ref, after every two transforms, obeys the law of every third.

A law compares a transform with what it means: difference quotients, inner products, a Python loop over the batch, the
two halves in a row. So a chain of two transforms with all laws on top is every chain of three.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
import fiveloop.testing.loops.references
import fiveloop.testing.remat.references  # noqa: F401  # the oracle learns what a loop and a checkpoint are
from fiveloop.core import Jaxpr, closed_call, custom_jvp
from fiveloop.core.extend import ShapedArray, jaxprs_in, stage_closed
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import AbstractRef
from fiveloop.testing.core import cube
from fiveloop.testing.core.cube import FEW, Transform
from fiveloop.testing.core.laws import (
    check_law_batch,
    check_law_dce,
    check_law_jvp,
    check_law_linearize,
    check_law_split,
    check_law_transpose,
    check_law_type,
    float_inputs,
)
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.samples import Sample
from fiveloop.testing.state.laws import check_law_discharge, check_law_partial_discharge, discharged

HELD, OTHER, X = np.array([0.4, -0.7]), np.array([0.2, 0.9]), np.array([1.1, 0.3])

# Each takes two Refs and an array, reads the one, and changes both.


def step(held: Any, other: Any, x: Any) -> Any:
    other[0] += fnp.sin(held[1] * x[0])
    held[1] = held[0] * x[1] + other[0]
    return fnp.cos(held[...]) * x


def in_a_call(held: Any, other: Any, x: Any) -> Any:
    return closed_call(step)(held, other, x)


@custom_jvp
def ruled(held: Any, x: Any) -> Any:
    """Add to a Ref, and give what it then holds times x."""
    held[0] += x[1]
    return held[...] * x


@ruled.defjvp
def ruled_jvp(primals: Any, tangents: Any) -> Any:
    (held, x), (held_dot, x_dot) = primals, tangents
    held[0] += x[1]
    held_dot[0] += x_dot[1]
    return held[...] * x, held_dot[...] * x + held[...] * x_dot


def in_a_custom_rule(held: Any, other: Any, x: Any) -> Any:
    y = ruled(held, x * other[0])
    other[1] = y[0] * held[1]
    return y


def in_a_for(held: Any, other: Any, x: Any) -> Any:
    def body(i: Any, refs: Any) -> None:
        refs[0][i] = fnp.sin(refs[0][i]) * x[i] + held[i]
        other[0] += refs[0][i] * held[1]
        held[0] = other[0] * 0.5

    (out,) = for_loop(2, body, (x,))
    return out


def in_a_scan(held: Any, other: Any, x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        held[0] += carry * row
        other[1] = held[0] * other[1]
        return fnp.sin(carry) * held[1], carry * other[0]

    return scan(body, x[0], x)


def in_a_while(held: Any, other: Any, x: Any) -> Any:
    def body(state: Any) -> Any:
        i, y = state
        held[0] = fnp.sin(y) * held[1]
        other[1] += held[0] * x[1]
        return i + 1, y * other[0]

    return while_loop(lambda s: s[0] < 2, body, (0, x[0]))[1]


def in_a_cond(held: Any, other: Any, x: Any) -> Any:
    def other_way(x: Any) -> Any:
        other[1] = held[0] * x[1]
        return x * held[1]

    return cond(x[0] > 0.5, lambda x: step(held, other, x), other_way, x)


def in_a_checkpoint(held: Any, other: Any, x: Any) -> Any:
    return checkpoint(step)(held, other, x)


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "closed_call": in_a_call,
    "custom_rule": in_a_custom_rule,
    "for": in_a_for,
    "scan": in_a_scan,
    "while": in_a_while,
    "cond": in_a_cond,
    "checkpoint": in_a_checkpoint,
}


def some_discharged(s: Sample, rng: np.random.Generator) -> Sample:
    """Every other Ref as a value, beginning with the first."""
    refs = [isinstance(a, AbstractRef) for a in s.jaxpr.in_avals]
    return discharged(s, [r and sum(refs[:k]) % 2 == 0 for k, r in enumerate(refs)])


TRANSFORMS: dict[str, Transform] = {**cube.TRANSFORMS, "discharge": some_discharged}


def program(name: str) -> Sample:
    """One primitive on two Refs and an array."""
    vector = ShapedArray(X.shape, X.dtype)
    avals = [AbstractRef(vector), AbstractRef(vector), vector]

    def flat(*args: Any) -> list[Any]:
        out = PROGRAMS[name](*args)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    return Sample(stage_closed(flat, avals, name), (Cell(HELD.copy()), Cell(OTHER.copy()), X))


def primitives_in(jaxpr: Jaxpr) -> set[str]:
    """The names of the primitives in a jaxpr and in those that it holds."""
    found = {eqn.primitive.name for eqn in jaxpr.eqns}
    return found.union(*[primitives_in(j) for eqn in jaxpr.eqns for j in jaxprs_in(eqn.params)])


def check(s: Sample) -> None:
    """Every law of a third transform."""
    check_law_type(s)
    check_law_dce(s, most=FEW)
    check_law_split(s, most=FEW)
    check_law_batch(s, most=FEW)
    if any(float_inputs(s)):
        check_law_jvp(s)
        check_law_linearize(s)
        check_law_transpose(s)
    check_law_discharge(s)
    check_law_partial_discharge(s)


@pytest.mark.oracle
@pytest.mark.parametrize("first", TRANSFORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_three_transforms_deep(name: str, first: str) -> None:
    rng = np.random.default_rng(len(name) * 7 + len(first))
    once = TRANSFORMS[first](program(name), rng)
    for transform in TRANSFORMS.values():
        check(transform(once, rng))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_made_of_its_primitive_on_a_ref(name: str) -> None:
    s = program(name)
    wanted = {"scan": "for"}.get(name, name)
    assert wanted in primitives_in(s.jaxpr)
    assert len(s.jaxpr.effects) >= 2
    check(s)


def test_the_cube_is_whole() -> None:
    assert set(TRANSFORMS) == {"jvp", "vjp", "batch", "split", "dce", "discharge"}
    assert len(list(product(PROGRAMS, TRANSFORMS, TRANSFORMS, TRANSFORMS))) == 7 * 6**3

"""Random loops that read and write a few arrays at places of all kinds: derivatives, against the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.state as st
from fiveloop.core import grad, jit
from fiveloop.core.extend import as_value
from fiveloop.core.primitives import special as sp
from fiveloop.loops import cond, for_loop
from fiveloop.testing.core.laws import (
    check_law_dce,
    check_law_linearize,
    check_law_transpose,
)
from fiveloop.testing.core.samples import Sample, sample
from fiveloop.testing.loops import references

SIZE, LANES = 5, 2
Rng = np.random.Generator


def place(rng: Rng, i: Any) -> Any:
    """An index: affine in the counter most of the time, in range or not."""
    kind = rng.integers(0, 10)
    if kind == 0:
        return int(rng.integers(0, SIZE))
    if kind == 1:
        return (i * i) % SIZE
    step = int(rng.choice([1, 1, 1, -1, 2]))
    start = int(rng.integers(-1, 3)) + (SIZE - 2 if step < 0 else 0)
    return i * step + start if step != 1 or start else i


def step_of(rng: Rng, refs: list[Any], i: Any) -> None:
    """A few statements on Refs of rows, and on the last one as a whole."""
    *arrays, carry = refs
    values = [carry[...]]

    def value() -> Any:
        return values[int(rng.integers(0, len(values)))]

    for _ in range(int(rng.integers(1, 5))):
        ref = arrays[int(rng.integers(0, len(arrays)))]
        match int(rng.integers(0, 7)):
            case 0 | 1:
                values.append(ref[place(rng, i)])
            case 2:
                values.append(sp.sin(value() * value()))
                ref[place(rng, i)] = values[-1]
            case 3:
                ref[place(rng, i)] += 0.5 * value()
            case 4:
                k = place(rng, i)
                values.append(ref[k])
                ref[k] = values[-1] * value()
            case 5:
                values.append(value() * value() * 0.5)
            case _:
                carry[...] = value()
    y = sp.sin(values[-1] * value())
    if rng.integers(0, 2):
        arrays[int(rng.integers(0, len(arrays)))][place(rng, i)] = y
    carry[...] = y if rng.integers(0, 2) else y * y


def program(seed: int) -> Callable[..., Any]:
    """A loop on two states and a Ref from outside, perhaps within another, in a branch or a call."""
    rng = np.random.default_rng(seed)
    steps, reverse = int(rng.integers(4, SIZE + 1)), bool(rng.integers(0, 2))
    form, changes, first = int(rng.integers(0, 8)), bool(rng.integers(0, 2)), rng.integers(2**31)

    def fun(x: Any, y: Any, z: Any, c: Any) -> Any:
        outer = st.new_ref(z)

        def body(i: Any, refs: Any) -> None:
            again = np.random.default_rng(first)

            def run(k: Any) -> None:
                step_of(again, [refs[0], refs[1], outer, refs[2]], k)

            if form == 1:
                cond(i > 1, lambda: run(i), lambda: None)
            elif form == 2:
                for_loop(2, lambda j, _: run(i + j), ())
            else:
                run(i)

        call = (
            jit(lambda *args: for_loop(steps, body, args, reverse=reverse)) if form == 3 else None
        )
        got = for_loop(steps, body, (x, y, c), reverse=reverse) if call is None else call(x, y, c)
        total = outer[...] * 0.5
        if changes:
            outer[...] = total * 0.0
        return (*got, total, outer[...])

    return fun


def drawn(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, shape) for shape in [(SIZE, LANES)] * 3 + [(LANES,)]]


def check(seed: int) -> None:
    assert references.__name__, "unreachable: with it the oracle knows loops and Refs"
    s: Sample = sample(program(seed), *drawn(seed))
    check_law_linearize(s, seed)
    check_law_transpose(s, seed)
    check_law_dce(s, seed)


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_random_loops(seed: int) -> None:
    for k in range(seed, seed + 10):
        check(k)


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(0, 20, 10))
def test_dead_code_of_the_derivatives_of_random_loops(seed: int) -> None:
    """Cotangents that nobody wants need not be set to zero, as long as no later step reads them."""
    for k in range(seed, seed + 10):
        fun = program(k)
        total = lambda *xs, fun=fun: sum((y * y).sum() for y in fun(*xs))
        s: Sample = sample(grad(total, (0, 1, 2, 3)), *drawn(k))
        check_law_dce(s, k)
        assert s.jaxpr.eqns


def test_compiled_gradients_are_those_of_plain_python() -> None:
    fun = program(7)
    args = [as_value(x) for x in drawn(7)]

    def total(*xs: Any) -> Any:
        return sum((y * y).sum() for y in fun(*xs))

    got: Any = jit(grad(total, (0, 3)))(*args)
    plain: Any = grad(total, (0, 3))(*args)
    for a, b in zip(got, plain, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9)

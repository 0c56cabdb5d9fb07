"""Small programs with loops that once came out wrong, found by random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import TypecheckError, Value, ds, make_jaxpr
from fiveloop.core.extend import typecheck
from fiveloop.loops import for_loop, scan
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.cube import check_chain
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_function
from fiveloop.testing.state.laws import check_law_discharge

VECTOR = np.array([0.3, -0.7, 1.1])


def test_what_a_ref_made_in_a_body_held_may_be_written_to_a_state() -> None:
    def fun(x: Value) -> Any:
        def body(i: Value, refs: list[Any]) -> None:
            kept, state = refs
            inner = new_ref(VECTOR)
            inner[i] += 2.0
            state[...] = freeze(inner)
            kept[i] = x[i] * x[i]

        return for_loop(2, body, [x, VECTOR])

    s = check_function(fun, VECTOR)
    np.testing.assert_allclose(s.run()[1], [0.3, 1.3, 1.1])


def test_what_is_read_after_writing_an_element_twice_is_the_last_value() -> None:
    where = np.array([1, 1, 0])

    def fun(x: Value) -> Any:
        def body(i: Value, refs: list[Any]) -> None:
            state, read = refs
            state[where] = x + i
            read[...] = state[where]

        return for_loop(1, body, [VECTOR, VECTOR])

    s = check_function(fun, VECTOR)
    np.testing.assert_array_equal(s.run()[1], [-0.7, -0.7, 1.1])


def test_the_derivative_of_writing_an_element_twice_in_a_loop() -> None:
    where = np.array([1, 1, 0])

    def fun(x: Value, y: Value) -> Any:
        def body(i: Value, refs: list[Any]) -> None:
            refs[0][where] = x * y

        return for_loop(2, body, [y])

    s = sample(fun, VECTOR, VECTOR)
    check_law_discharge(check_chain(s, ["vjp"]))
    check_law_discharge(check_chain(s, ["batch", "vjp"]))


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(("written", "read"), [(2, 1), (1, 3), (3, 2)])
def test_a_part_of_one_element_is_the_same_whatever_its_stride(
    written: int, read: int, static: bool
) -> None:
    def body(i: Value, ref: Any) -> None:
        k = 1 if static else i
        ref[ds(k, 1, written)] = 2.0 * ref[0:1]
        ref[3:4] = ref[ds(k, 1, read)] + 1.0

    def fun(x: Value) -> list[Any]:
        return [for_loop(3, body, x)]

    x = np.array([1.0, 2.0, 3.0, 4.0])
    want = x.copy()
    for i in range(3):
        want[1 if static else i] = 2.0 * want[0]
        want[3] = want[1 if static else i] + 1.0
    (got,) = check_function(fun, x).run()
    np.testing.assert_allclose(got, want)


def test_an_array_that_an_inner_loop_is_given_twice_has_the_derivative_of_both() -> None:
    """Loops take arrays that they only read as Refs; an inner loop must not take one Ref twice."""

    def fun(x: Value) -> Any:
        def outer(carry: Any, _: None) -> Any:
            step = lambda c, pair: (np.sin(c * pair[0]) + pair[1] ** 2, None)
            return scan(step, carry, (x, x))[0], None

        return scan(outer, 0.1, length=2)[0]

    s = check_function(fun, VECTOR)
    typecheck(s.jaxpr)
    check_grads(fun, (VECTOR,))


def test_loops_three_deep_that_all_read_one_array_have_its_derivative() -> None:
    def fun(x: Value) -> Any:
        def middle(carry: Any, y: Any) -> Any:
            return scan(lambda c, z: (np.sin(c * z) * y, None), carry, x)[0], None

        return scan(lambda c, _: (scan(middle, c, x)[0], None), 0.1, length=2)[0]

    check_grads(fun, (VECTOR,))


def test_the_checker_refuses_a_ref_that_is_given_twice() -> None:
    def fun(ref: Any, other: Any) -> Any:
        return for_loop(2, lambda i, r: r.__setitem__(i, ref[i] + other[i]), VECTOR)

    jaxpr = make_jaxpr(fun)(new_ref(VECTOR), new_ref(VECTOR))
    typecheck(jaxpr)
    (loop,) = jaxpr.eqns
    operands = [jaxpr.invars[0] if v is jaxpr.invars[1] else v for v in loop.invars]
    twice = jaxpr.replace(eqns=[loop.replace(invars=operands)])
    with pytest.raises(TypecheckError, match="a mutable operand is given twice, under one name"):
        typecheck(twice)

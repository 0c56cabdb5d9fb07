"""The graph of a jaxpr: makers and users, what a value reaches, and what is the same in every run."""

from typing import Any

import numpy as np

from fiveloop.core import make_jaxpr
from fiveloop.core.ir.graph import invariant, makers, reachable, users
from fiveloop.state import new_ref


def test_makers_and_users_are_those_of_the_equations() -> None:
    jaxpr = make_jaxpr(lambda x, y: (x * y) + x * x)(1.0, 2.0)
    x, y = jaxpr.invars
    first, square, total = jaxpr.eqns
    assert [e.primitive.name for e in jaxpr.eqns] == ["mul", "mul", "add"]
    assert makers(jaxpr)[jaxpr.outvars[0]] is total  # type: ignore[index]  # a result is a variable
    assert x not in makers(jaxpr)
    assert list(users(jaxpr)[x]) == [first, square]
    assert list(users(jaxpr)[y]) == [first]


def test_what_is_written_to_a_ref_reaches_what_is_read_before_and_after() -> None:
    def f(ref: Any, x: Any, y: Any) -> Any:
        before = ref[0]
        ref[1] = x
        return before, y

    jaxpr = make_jaxpr(f)(new_ref(np.ones(2)), 3.0, 4.0)
    ref, x, y = jaxpr.invars
    before, _ = jaxpr.outvars
    found = reachable(jaxpr, [x])
    assert ref in found
    assert before in found
    assert y not in found
    assert before not in reachable(jaxpr, [x], fixed=[ref])


def test_what_is_computed_from_fixed_values_alone_is_fixed() -> None:
    jaxpr = make_jaxpr(lambda x, y: ((x * 2.0) * 3.0, x + y))(1.0, 2.0)
    x, _ = jaxpr.invars
    found = invariant(jaxpr.eqns, [x])
    assert [v in found for v in jaxpr.outvars] == [True, False]

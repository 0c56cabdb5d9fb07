"""The type checker refuses loops and branches that nobody could have written, with the equation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fiveloop.core import Jaxpr, make_jaxpr
from fiveloop.core.errors import TypecheckError
from fiveloop.core.extend import Eqn, typecheck
from fiveloop.loops import cond, for_loop, while_loop
from fiveloop.state import new_ref

X = np.ones(3, np.float32)


def write(i: Any, r: Any) -> None:
    r[i] = 1.0


def stored(x: Any) -> Any:
    r = new_ref(x)
    r[0] = 1.0
    return r[...]


LOOP = make_jaxpr(lambda x: for_loop(3, write, x))(X)
WHILE = make_jaxpr(lambda x: while_loop(lambda c: c[0] < 3, lambda c: c * 2, x))(X)
COND = make_jaxpr(lambda x: cond(x[0] > 1, lambda: x, lambda: 2 * x))(X)
STORE = make_jaxpr(stored)(X)


def check_with(jaxpr: Jaxpr, name: str, change: Any) -> None:
    """Check a jaxpr one of whose equations is another one."""
    eqns = [change(e) if e.primitive.name == name else e for e in jaxpr.eqns]
    typecheck(Jaxpr(jaxpr.invars, eqns, jaxpr.outvars, effects=jaxpr.effects))


PARAMS: dict[str, tuple[Jaxpr, str, dict[str, Any], str]] = {
    "reverse": (LOOP, "for", {"reverse": 4}, "for: reverse must be True or False, got 4"),
    "nsteps": (LOOP, "for", {"nsteps": -1}, "for: nsteps must be an integer of at least 0, got -1"),
    "unroll": (LOOP, "for", {"unroll": -2}, "for: unroll must be an integer of at least 0, got -2"),
    "end": (LOOP, "for", {"end": 3}, "for: end must be None or the number of a carried value, got"),
    "consts": (
        WHILE,
        "while",
        {"num_consts": -1},
        "while: num_consts must be an integer from 0 to",
    ),
    "branches": (
        COND,
        "cond",
        {"branches": ()},
        "cond: branches must be at least one jaxpr, got 0",
    ),
    "vmap": (COND, "cond", {"vmap": "all"}, "cond: vmap must be one of"),
}


@pytest.mark.parametrize("case", PARAMS)
def test_params_that_no_loop_has_are_refused(case: str) -> None:
    jaxpr, name, params, message = PARAMS[case]
    typecheck(jaxpr)
    with pytest.raises(TypecheckError, match=message) as raised:
        check_with(jaxpr, name, lambda e: e.replace(params=replace(e.params, **params)))
    assert "in the equation" in str(raised.value)


@pytest.mark.parametrize(
    ("jaxpr", "name"),
    [(LOOP, "for"), (WHILE, "while"), (COND, "cond"), (STORE, "swap"), (STORE, "get")],
)
def test_operands_that_are_missing_or_too_many_are_refused(jaxpr: Jaxpr, name: str) -> None:
    def fewer(eqn: Eqn) -> Eqn:
        return eqn.replace(invars=())

    def more(eqn: Eqn) -> Eqn:
        return eqn.replace(invars=(*eqn.invars, *jaxpr.invars, *jaxpr.invars))

    for change in (fewer, more):
        with pytest.raises(TypecheckError, match=f"`{name}` does not take operands of types"):
            check_with(jaxpr, name, change)

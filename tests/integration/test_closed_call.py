"""Calls inside of loops and checkpoints: what a rule writes there needs nobody's help to get through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import Jaxpr, Value, closed_call, grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.extend import (
    Aval,
    Primitive,
    Tangent,
    Zero,
    bind1,
    define,
    hlo,
    jaxprs_in,
    linearize_jaxpr,
    pure,
    typecheck,
)
from fiveloop.loops import scan
from fiveloop.remat import checkpoint

TABLE = np.array([0.5, -1.5, 2.0])
X = np.array([0.3, -0.2, 0.7])


@dataclass(frozen=True)
class TwiceParams:
    """Nothing but a name for the printer."""

    label: str = "twice"


tabled_p: Primitive[TwiceParams] = Primitive("tabled")


def tabled(x: Any) -> Any:
    """`sin(x * TABLE)`, by a primitive of this file."""
    return bind1(tabled_p, x, params=TwiceParams())


def _types(avals: Sequence[Aval], p: TwiceParams) -> list[Aval]:
    return [avals[0].strong()]


def _lower(ctx: Any, operands: Sequence[Any], p: TwiceParams) -> list[Any]:
    (x,) = operands
    table = [hlo.constant(ctx.b, t, (), x.dtype) for t in TABLE]
    rows = [hlo.reshape(ctx.b, t, (1,)) for t in table]
    return [hlo.sine(ctx.b, hlo.mul(ctx.b, x, hlo.concatenate(ctx.b, rows, 0)))]


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: TwiceParams
) -> tuple[list[Value], list[Tangent]]:
    """Two equations where there was one, in a call, and an array that nobody has seen before."""
    (x,), (t,) = primals, tangents
    table = TABLE.copy()
    out = tabled(x)
    if isinstance(t, Zero):
        return [out], [Zero(out.aval)]
    slope = closed_call(lambda x: fnp.cos(x * table) * table, name="slope")
    return [out], [t * slope(x)]


def _batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: TwiceParams
) -> tuple[list[Value], list[int | None]]:
    """The same: two equations and a new array."""
    (x,), (d,) = operands, dims
    assert d == 0, "unreachable: values are batched in front"
    return [fnp.sin(x * TABLE.copy())], [0]


define(tabled_p, abstract_eval=pure(_types), lower=_lower, jvp=_jvp, batch=_batch)


def with_rule(x: Any) -> Any:
    return tabled(x)


def by_hand(x: Any) -> Any:
    return fnp.sin(x * TABLE)


def looped(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A checkpoint of a scan whose body uses the function."""

    def run(x: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            new = step(carry) + row
            return new, (new * carry).sum()

        last, rows = checkpoint(lambda c: scan(body, c, np.stack([X, 2 * X, -X])))(x)
        return last.sum() + (rows**2).sum()

    return run


TRANSFORMS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "value": lambda f: f,
    "grad": grad,
    "jvp": lambda f: lambda x: jvp(f, (x,), (TABLE,))[1],
    "grad of grad": lambda f: grad(lambda x: (grad(f)(x) * TABLE).sum()),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(x * TABLE[:2, None]),
    "grad of vmap": lambda f: grad(lambda x: vmap(f)(x * TABLE[:2, None]).sum()),
}


@pytest.mark.parametrize("compile", [jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_rule_of_two_equations_and_a_new_constant_inside_a_checkpointed_scan(
    name: str, compile: Callable[[Any], Any]
) -> None:
    transform = TRANSFORMS[name]
    got = compile(transform(looped(with_rule)))(X)
    want = jit(transform(looped(by_hand)))(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-10)


def calls_in(jaxpr: Jaxpr) -> list[str]:
    """The names of the calls in a jaxpr and in those that it holds."""
    found = []
    for eqn in jaxpr.eqns:
        found += [eqn.params.name] if eqn.primitive.name == "closed_call" else []
        found += [name for inner in jaxprs_in(eqn.params) for name in calls_in(inner)]
    return found


def test_the_constant_stays_inside_the_rule() -> None:
    """No operand and no residual is made for it: it is a literal of the innermost jaxpr."""
    jaxpr = make_jaxpr(looped(with_rule))(X)
    known, linear, _, _ = linearize_jaxpr(jaxpr, (True,))
    typecheck(known)
    typecheck(linear)
    assert "slope" in [*calls_in(known), *calls_in(linear)]
    assert len(known.invars) == 1
    copies = [c for c in (*known.consts, *linear.consts) if np.array_equal(np.asarray(c), TABLE)]
    assert copies

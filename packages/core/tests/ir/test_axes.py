"""Named axes of jaxprs: which there are, and renaming them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    Jaxpr,
    TypecheckError,
    axis_index,
    closed_call,
    jit,
    make_jaxpr,
    ppermute,
    psum,
    vjp,
    vmap,
)
from fiveloop.core.extend import NamedAxis, axes_in, axes_of, rename_axes, typecheck
from fiveloop.testing.core.lanes import lanes
from fiveloop.testing.core.oracle import run_jaxpr

I, J, K = NamedAxis("i", 2), NamedAxis("j", 3), NamedAxis("k", 2)
ENV = [("i", 2), ("j", 3)]


def nested() -> Jaxpr:
    def fun(x: Any) -> Any:
        inner = jit(lambda y: closed_call(lambda z: psum(z, ("i", "j")) * axis_index("j"))(y))
        return inner(x) + ppermute(x, "i", [(0, 1)])

    return make_jaxpr(fun, axis_env=ENV)(np.float64(1.0))


def run(jaxpr: Jaxpr, *axes: NamedAxis) -> Any:
    x = np.arange(6.0).reshape(2, 3)
    with lanes(*axes):
        return run_jaxpr(jaxpr, [x if axes[0].size == 2 else x.T])[0]


def test_renaming_reaches_every_jaxpr() -> None:
    renamed = rename_axes(nested(), {"i": "rows", "j": ("x", 1)})
    rows, other = NamedAxis("rows", 2), NamedAxis(("x", 1), 3)
    assert axes_of(renamed.effects) == [other, rows]
    assert "'i'" not in repr(renamed) and " i=2" not in repr(renamed)
    typecheck(renamed)
    np.testing.assert_allclose(run(renamed, rows, other), run(nested(), I, J))


def test_names_may_be_swapped() -> None:
    swapped = rename_axes(nested(), {"i": "j", "j": "i"})
    assert axes_of(swapped.effects) == [NamedAxis("i", 3), NamedAxis("j", 2)]
    typecheck(swapped)
    got = run(swapped, NamedAxis("j", 2), NamedAxis("i", 3))
    np.testing.assert_allclose(got, run(nested(), I, J))


def test_renaming_is_remembered_and_leaves_others_alone() -> None:
    jaxpr = nested()
    assert rename_axes(jaxpr, {"i": "k"}) is rename_axes(jaxpr, {"i": "k"})
    assert rename_axes(jaxpr, {"elsewhere": "k"}) is jaxpr
    assert rename_axes(jaxpr, {}) is jaxpr


def test_two_axes_never_become_one() -> None:
    def fun(x: Any) -> Any:
        return psum(x, "i") + psum(x, "k")

    jaxpr = make_jaxpr(fun, axis_env=[("i", 2), ("k", 2)])(1.0)
    with pytest.raises(ValueError, match="i=2 and k=2 would both be k=2; rename the other one too"):
        rename_axes(jaxpr, {"i": "k"})
    assert axes_of(rename_axes(jaxpr, {"i": "k", "k": "i"}).effects) == [I, K]


def test_an_outer_axis_hidden_by_an_inner_one_is_renamed_alone() -> None:
    # The pullback goes over the outer axis `i`, where the inner one of that name hides it from the user.
    def fun(x: Any) -> Any:
        pull = vjp(lambda a: psum(a, "i"), x)[1]
        jaxprs.append(make_jaxpr(lambda y: pull(y)[0] * psum(y, "i"), axis_env=[("i", 2)])(x))
        return x

    jaxprs: list[Jaxpr] = []
    vmap(fun, axis_name="i")(np.ones(2))
    (jaxpr,) = jaxprs
    inner = NamedAxis("i", 2, level=1)
    assert axes_of(jaxpr.effects) == [inner, I]
    assert str(inner) == "i'=2"
    assert axes_of(rename_axes(jaxpr, {"i": "k"}).effects) == [inner, K]
    assert axes_of(rename_axes(jaxpr, {inner: "k"}).effects) == [I, K]
    with pytest.raises(ValueError, match="would both be i=2"):
        rename_axes(jaxpr, {inner: "i"})


@dataclass(frozen=True)
class _Params:
    bodies: tuple[Jaxpr, ...]
    axis: NamedAxis
    other: int = 3


def test_axes_in_params() -> None:
    assert axes_in(_Params((nested(),), K)) == {I, J, K}
    assert axes_in(None) == set()


def test_an_axis_has_one_size() -> None:
    small = make_jaxpr(lambda x: psum(x, "i"), axis_env=[("i", 2)])(1.0)
    large = make_jaxpr(lambda x: psum(x, "i"), axis_env=[("i", 5)])(1.0)
    both = Jaxpr(
        [*small.invars, *large.invars],
        [*small.eqns, *large.eqns],
        [*small.outvars, *large.outvars],
    )
    with pytest.raises(TypecheckError, match="the named axis 'i' has the sizes 2 and 5"):
        typecheck(both)

"""A Ref that has been frozen is at its end, wherever it is used; and it is frozen only where it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    FrozenRefError,
    closed_call,
    grad,
    jacfwd,
    jit,
    jvp,
    linearize,
    vjp,
    vmap,
)
from fiveloop.state import accumulate, addupdate, empty_ref, freeze, get, new_ref, run_state, swap
from fiveloop.testing.core.misuse import assert_misuse, raised

X = np.arange(3.0)
Use = Callable[[Any], object]


def first(ref: Any) -> Any:
    return ref[0]


USES: dict[str, Use] = {
    "read": first,
    "get": lambda r: get(r),
    "write": lambda r: r.__setitem__(0, 1.0),
    "swap": lambda r: swap(r, 0, 1.0),
    "add": lambda r: addupdate(r, 0, 1.0),
    "accumulate": lambda r: accumulate(r, 0, 1.0, "max"),
    "mask": lambda r: r.__setitem__(X > 1.0, 1.0),
    "part": lambda r: r.at[1:][0],
    "part that is not used": lambda r: r.at[1:],
    "part of a part": lambda r: r.at[1:].at[0].__setitem__(..., 2.0),
    "freeze": freeze,
    "argument of jit": lambda r: jit(first)(r),
    "part as an argument of jit": lambda r: jit(first)(r.at[1:]),
    "closed over by jit": lambda r: jit(lambda: first(r))(),
    "part closed over": lambda r: jit(lambda: first(r.at[1:]))(),
    "argument of closed_call": lambda r: closed_call(first)(r),
    "argument of vmap": lambda r: (
        vmap(first, 0)(new_ref(np.ones((2, 3)))) + vmap(lambda q: q[...])(r)
    ),
    "shared by lanes": lambda r: vmap(lambda x: r[0] + x)(X),
    "argument of grad": lambda r: grad(first)(r),
    "argument of vjp": lambda r: vjp(first, r),
    "argument of linearize": lambda r: linearize(first, r),
}


def directly(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return f


@pytest.mark.parametrize("transform", [directly, jit, grad, closed_call, lambda f: jit(grad(f))])
@pytest.mark.parametrize("name", USES)
def test_a_frozen_ref_is_at_its_end(name: str, transform: Callable[..., Any]) -> None:
    use = USES[name]

    def f(x: Any) -> Any:
        ref = new_ref(x)
        freeze(ref)
        use(ref)
        return x.sum()

    error = raised(lambda: transform(f)(X))
    assert type(error) is FrozenRefError
    code = f.__code__
    where = f"{code.co_filename}:{code.co_firstlineno + 2} (f)"
    assert str(error).split("\n")[0] == (
        f"the Ref of type Ref{{f64[3]}} was used after it had been frozen at {where}; use the array that `freeze` "
        "returned"
    )


@pytest.mark.parametrize("transform", [directly, jit, grad])
def test_a_part_made_before(transform: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        ref = new_ref(x)
        part = ref.at[1:]
        freeze(ref)
        return part[0]

    with pytest.raises(FrozenRefError, match="had been frozen at"):
        transform(f)(X)


OUTSIDE = (
    "freeze: expected a Ref that was made here, got one of type Ref{f64[3]}, which is made outside of the traced "
    "function; freeze it there, and read it here: `ref[...]`"
)


@pytest.mark.parametrize("transform", [jit, closed_call, lambda f: jit(jit(f))])
def test_a_ref_that_a_function_was_given_is_not_frozen(transform: Callable[..., Any]) -> None:
    ref = new_ref(X)
    assert_misuse(lambda: transform(lambda r: freeze(r))(ref), TypeError, OUTSIDE)
    assert_misuse(lambda: transform(lambda: freeze(ref))(), TypeError, OUTSIDE)
    assert_misuse(lambda: jit(lambda x: transform(freeze)(new_ref(x)))(X), TypeError, OUTSIDE)
    np.testing.assert_array_equal(np.asarray(ref[...]), X)


GIVEN: dict[str, Callable[[Any], object]] = {
    "vmap": lambda r: vmap(lambda q: freeze(q))(r),
    "vmap, shared": lambda r: vmap(lambda q, x: freeze(q) + x, in_axes=(None, 0))(r, X),
    "vmap in jit": lambda r: jit(vmap(lambda q: freeze(q)))(r),
    "vmap of one made in jit": lambda r: jit(lambda x: vmap(lambda q: freeze(q))(new_ref(x)))(X),
    "grad": lambda r: grad(lambda q: freeze(q).sum())(r),
    "grad of others": lambda r: grad(lambda x, q: freeze(q)[0] * x)(2.0, r),
    "jvp": lambda r: jvp(lambda q: freeze(q), (r,), (X,)),
    "vjp": lambda r: vjp(lambda q: freeze(q), r),
    "linearize": lambda r: linearize(lambda q: freeze(q), r),
    "jacfwd": lambda r: jacfwd(lambda q: freeze(q))(r),
    "a part of it": lambda r: vmap(lambda q: freeze(q))(r.at[1:]),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_ref_that_is_given_to_what_is_transformed_eagerly_is_not_frozen(name: str) -> None:
    ref = new_ref(X)
    error = raised(lambda: GIVEN[name](ref))
    assert type(error) is TypeError
    assert str(error).startswith(
        "freeze: expected a Ref that was made here, got one of type Ref{f64["
    )
    np.testing.assert_array_equal(np.asarray(ref[...]), X)


RETURNED: dict[str, tuple[Callable[[Any], object], str]] = {
    "vmap": (lambda r: vmap(lambda q: q)(r), "result"),
    "vmap, closed over": (lambda r: vmap(lambda x: (x, r))(X), "result[1]"),
    "vmap, a part": (lambda r: vmap(lambda x: r.at[1:])(X), "part"),
    "jvp": (lambda r: jvp(lambda q: {"a": q}, (r,), (X,)), "result['a']"),
    "grad": (lambda r: grad(lambda q: (q[0], q), has_aux=True)(r), "result (auxiliary)"),
    "grad, a part": (lambda r: grad(lambda q: (q[0], q.at[1:]), has_aux=True)(r), "part"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_a_ref_that_was_given_is_not_returned(name: str) -> None:
    call, what = RETURNED[name]
    ref = new_ref(X)
    error = raised(lambda: call(ref))
    assert type(error) is TypeError
    if what == "part":
        assert "is a part of another; return its contents, `part[...]`" in str(error)
    else:
        assert str(error).startswith(f"the {what} of <lambda> at ")
        assert "was made outside of it, so the caller has it; leave it out" in str(error)


@pytest.mark.parametrize("transform", [directly, jit])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lanes_return_refs_that_they_have_made(axis: int, transform: Callable[..., Any]) -> None:
    def made(x: Any) -> Any:
        ref = new_ref(x * np.arange(4.0))
        ref[0] = x
        return ref

    ref = transform(lambda x: vmap(made, out_axes=axis)(x))(X)
    ref[0, 0] += 7.0
    want = np.stack([np.asarray([x, x, 2 * x, 3 * x]) for x in X], axis)
    want[0, 0] += 7.0
    np.testing.assert_array_equal(np.asarray(ref[...]), want)


def test_lives_within_transforms() -> None:
    def f(x: Any) -> Any:
        ref = empty_ref(x.shape, x.dtype)
        ref[...] = x
        ref.at[1:][...] *= 2.0
        return freeze(ref).sum() + run_state(lambda r: r.__setitem__(0, 5.0))(x)[0]

    assert [float(t(f)(X)) for t in (directly, jit, closed_call)] == [11.0] * 3
    assert grad(f)(X).tolist() == [1.0, 2.0, 2.0]
    assert vmap(f)(np.stack([X, X])).tolist() == [11.0, 11.0]
    assert repr(empty_ref((2,))) == "Ref([0. 0.], dtype=float32)"


def returned_frozen(x: Any) -> Any:
    ref = new_ref(x)
    return freeze(ref), ref


def test_a_frozen_ref_is_not_returned_alive() -> None:
    with pytest.raises(FrozenRefError, match="after it had been frozen at"):
        jit(returned_frozen)(np.ones(3))

"""Errors below a transform show the user's frames alone, and are the same errors in every other way."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    CoreError,
    closed_call,
    debug_nans,
    disable_jit,
    eval_shape,
    full_tracebacks,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linear_transpose,
    linearize,
    make_jaxpr,
    vjp,
    vmap,
)
from fiveloop.core.ir.source import is_internal
from fiveloop.core.trace.boundary import boundary
from fiveloop.loops import cond, for_loop, fori_loop, map, scan, switch, while_loop
from fiveloop.remat import checkpoint, explain_residuals, pareto, saved_residuals
from fiveloop.state import new_ref

X = fnp.asarray(np.array([1.0, 2.0, 3.0]))


@pytest.fixture(autouse=True)
def filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIVELOOP_TRACEBACK", raising=False)


def library_fails(x: Any) -> Any:
    return innermost(x)


def innermost(x: Any) -> Any:
    return fnp.reshape(x, (7, 7))


def user_fails(x: Any) -> Any:
    raise KeyError("mine")


def caught(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("expected an error")


def frames(error: BaseException) -> list[str]:
    out, entry = [], error.__traceback__
    while entry is not None:
        out.append(entry.tb_frame.f_code.co_name)
        entry = entry.tb_next
    return out


def has_internal(entry: TracebackType | None) -> bool:
    while entry is not None:
        if is_internal(entry.tb_frame.f_code):
            return True
        entry = entry.tb_next
    return False


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: jit(f)(X),
    "closed_call": lambda f: closed_call(f)(X),
    "checkpoint": lambda f: checkpoint(f)(X),
    "make_jaxpr": lambda f: make_jaxpr(f)(X),
    "eval_shape": lambda f: eval_shape(f, X),
    "vmap": lambda f: vmap(f)(X),
    "jvp": lambda f: jvp(f, (X,), (X,)),
    "linearize": lambda f: linearize(f, X),
    "linear_transpose": lambda f: linear_transpose(f, X),
    "vjp": lambda f: vjp(f, X),
    "grad": lambda f: grad(f)(X),
    "jacfwd": lambda f: jacfwd(f)(X),
    "jacrev": lambda f: jacrev(f)(X),
    "hessian": lambda f: hessian(f)(X),
    "jit of grad of vmap": lambda f: jit(grad(vmap(f)))(X),
    "scan": lambda f: scan(lambda c, x: (c, f(x)), 0.0, X),
    "map": lambda f: map(f, X),
    "for": lambda f: for_loop(2, lambda i, r: f(r[i]), X),
    "fori": lambda f: fori_loop(0, 2, lambda i, x: f(x), X),
    "while": lambda f: while_loop(lambda x: x.sum() < 1, f, X),
    "cond": lambda f: cond(True, f, f, X),
    "switch": lambda f: switch(0, [f, f], X),
    "saved_residuals": lambda f: saved_residuals(f, X),
    "explain_residuals": lambda f: explain_residuals(f, X),
    "pareto": lambda f: pareto(f, X),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("f", [library_fails, user_fails])
def test_only_the_users_frames(f: Any, transform: str) -> None:
    error = caught(lambda: TRANSFORMS[transform](f))
    assert type(error) is (KeyError if f is user_fails else ValueError)
    names = [name for name in frames(error) if name != "<lambda>"]
    inner = ["user_fails"] if f is user_fails else ["library_fails", "innermost"]
    assert names == ["caught", *inner]
    assert not has_internal(error.__traceback__)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_all_frames_on_request(transform: str) -> None:
    with full_tracebacks():
        assert has_internal(caught(lambda: TRANSFORMS[transform](library_fails)).__traceback__)


def test_all_frames_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIVELOOP_TRACEBACK", "full")
    assert has_internal(caught(lambda: jit(library_fails)(X)).__traceback__)


def test_an_argument_that_the_transform_refuses() -> None:
    error = caught(lambda: grad(fnp.sum)(3))
    assert frames(error) == ["caught", "<lambda>"]


def test_chained_errors_stay_chained() -> None:
    def f(x: Any) -> Any:
        try:
            return library_fails(x)
        except ValueError as error:
            raise KeyError("mine") from error

    error = caught(lambda: jit(grad(f))(X))
    assert type(error) is KeyError
    assert type(error.__cause__) is ValueError
    assert frames(error.__cause__) == ["f", "library_fails", "innermost"]
    text = "".join(traceback.format_exception(error))
    assert "direct cause" in text
    assert "fiveloop/core" not in text


def test_errors_may_be_caught_on_the_way() -> None:
    def f(x: Any) -> Any:
        with pytest.raises(ValueError, match="reshape"):
            jit(library_fails)(x)
        return x.sum()

    np.testing.assert_array_equal(np.asarray(jit(grad(f))(X)), np.ones(3))


def test_the_library_s_own_faults_keep_their_frames() -> None:
    @boundary
    def broken() -> None:
        fnp.zeros(3)
        raise CoreError("two and two is five")

    assert "call" in frames(caught(broken))


def test_in_modes() -> None:
    with disable_jit():
        assert not has_internal(caught(lambda: jit(user_fails)(X)).__traceback__)
    with debug_nans():
        error = caught(lambda: jit(lambda x: fnp.log(-x))(X))
    assert frames(error) == ["caught", "<lambda>", "<lambda>"]
    assert not has_internal(error.__traceback__)


def test_names_and_docstrings_stay() -> None:
    assert vjp.__name__ == "vjp"
    assert (scan.__doc__ or "").startswith("Run `carry, y")
    assert grad(library_fails).__name__ == "library_fails"


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + np.ones(2),
        lambda x: np.ones(2) + x,
        lambda x: x @ 2.0,
        lambda x: x < np.ones(2),
        lambda x: ~x,
        lambda x: x << 1,
        lambda x: x[0.5],
        lambda x: x[0, 0],
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x.sum(axis=3),
        lambda x: x.reshape(7),
        lambda x: x.clip(np.ones(2), 3.0),
        lambda x: x.at[0, 0].set(1.0),
        lambda x: divmod(x, np.ones(2)),
        lambda x: hash(x),
        lambda x: new_ref(x)[0.5],
        lambda x: new_ref(x).__setitem__(0, np.ones(2)),
    ],
)
def test_operators_and_methods_outside_of_all_transforms(use: Callable[[Any], Any]) -> None:
    error = caught(lambda: use(X))
    assert isinstance(error, (TypeError, ValueError, IndexError))
    assert "\n  at " in str(error)
    assert not has_internal(error.__traceback__)
    with full_tracebacks():
        assert has_internal(caught(lambda: use(X)).__traceback__)

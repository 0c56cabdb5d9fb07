"""Jaxprs of one form run one program; whatever a program depends on is part of the form."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fiveloop.core import Jaxpr, ShapeDtype, closed_call, make_jaxpr
from fiveloop.core.arrays.array import device_put
from fiveloop.core.backend import client
from fiveloop.core.extend import Label, Primitive, Var
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.ir.jaxpr import Eqn
from fiveloop.core.lower.fingerprint import form_of
from fiveloop.core.trace.same_function import LARGEST_KEPT

F32 = ShapedArray((2,), np.float32)


def key(fun: Callable[..., Any], *specs: Any) -> Any:
    """The key of a function's form."""
    form = form_of(make_jaxpr(fun)(*(specs or [ShapeDtype((2,), "float32")])))
    assert form is not None
    return form.key


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the programs that are compiled during a test."""
    texts: list[str] = []
    original = client.compile_text

    def counting(text: str, *args: Any, **kwargs: Any) -> Any:
        texts.append(text)
        return original(text, *args, **kwargs)

    monkeypatch.setattr(client, "compile_text", counting)
    return texts


def test_names_do_not_count() -> None:
    def one(x: Any) -> Any:
        return (x * 2.0).sum()

    def two(y: Any) -> Any:
        doubled = y * 2.0
        return doubled.sum()

    assert key(one) == key(two)
    assert key(closed_call(one)) == key(closed_call(two, name="other"), ShapeDtype((2,), "float32"))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (lambda x: x * 2.0, lambda x: x * 3.0),
        (lambda x: x * 0.0, lambda x: x * -0.0),
        (lambda x: x + x * 2.0, lambda x: x * 2.0 + 2.0 * x),
        (lambda x: x - x * 2.0, lambda x: x * 2.0 - x),
        (lambda x: (x, x * 2.0), lambda x: (x * 2.0, x)),
        (lambda x: x.sum(), lambda x: x.max()),
        (lambda x: x.reshape(1, 2), lambda x: x.reshape(2, 1)),
        (lambda x: closed_call(lambda y: y * 2.0)(x), lambda x: closed_call(lambda y: y + 2.0)(x)),
    ],
)
def test_what_a_program_does_counts(one: Any, two: Any) -> None:
    assert key(one) != key(two)


def test_types_count() -> None:
    def double(x: Any) -> Any:
        return x * 2

    specs = [ShapeDtype((2,), "float32"), ShapeDtype((2,), "int32"), ShapeDtype((3,), "float32")]
    assert len({key(double, spec) for spec in specs}) == 3


def test_constants_count_by_which_are_the_same() -> None:
    a, b, c = (device_put(np.full(2, k, np.float32)) for k in range(3))
    assert key(lambda x: x * a + b) == key(lambda x: x * b + c)
    assert key(lambda x: x * a + b) != key(lambda x: x * a + a)


@dataclass(frozen=True)
class Params:
    """Params of a made-up primitive."""

    size: Any


def with_params(*params: Any) -> Any:
    """The form of a jaxpr with an equation for each of the params."""
    x = Var(F32)
    eqns = [Eqn(PRIMITIVE, [x], [Var(F32)], Params(p)) for p in params]
    return form_of(Jaxpr([x], eqns, [x]))


PRIMITIVE: Primitive[Any] = Primitive("made_up")


def test_params_count_with_their_types() -> None:
    given = [1, 1.0, True, 0.0, -0.0, 0, 0j, (1,), (1.0,), "1", None, float("nan"), np.float32]
    forms = [with_params(p) for p in given]
    assert len({form.key for form in forms}) == len(given)
    assert [with_params(p).key for p in given] == [form.key for form in forms]


def test_of_labels_only_which_are_the_same_counts() -> None:
    a, b, c = Label(), Label(), Label()
    assert with_params(a, b, a).key == with_params(c, a, c).key
    assert with_params(a, b, a).key != with_params(a, b, b).key


def test_params_that_cannot_be_compared_have_no_form() -> None:
    assert with_params([1]) is None


def test_calls_of_one_form_are_compiled_once(programs: list[str]) -> None:
    xs = [device_put(np.full(3, k, np.float32)) for k in range(4)]
    for weights in xs:
        out = closed_call(lambda x, w=weights: (x + w) * w[0])(xs[1])
        np.testing.assert_array_equal(
            np.asarray(out), (np.asarray(xs[1]) + np.asarray(weights)) * np.asarray(weights)[0]
        )
    assert len([text for text in programs if "slice" in text]) == 1


def scaled_by_itself() -> weakref.ref[Any]:
    """Run a call that closes over an array, and give a weak reference to that."""
    weights = device_put(np.arange(LARGEST_KEPT + 1, dtype=np.float32))
    out = closed_call(lambda x: x * weights)(weights)
    np.testing.assert_array_equal(np.asarray(out), np.square(np.asarray(weights)))
    return weakref.ref(weights)


def test_a_program_that_is_shared_keeps_no_constants() -> None:
    constant = scaled_by_itself()
    gc.collect()
    assert constant() is None

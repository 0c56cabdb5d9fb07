"""Functions are the same if nothing that they can reach differs or may change; else they are traced anew."""

from __future__ import annotations

import functools
import gc
import math
import operator
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fiveloop.core import closed_call, extend, forget_traces, grad, jit, vmap
from fiveloop.core.arrays.array import device_put
from fiveloop.core.backend.client import Executable
from fiveloop.core.trace.same_function import FEW, _traced, traced_once

GLOBAL = 2.0
SETTINGS = {"scale": 2.0}
X = device_put(np.ones(3, np.float32))


@pytest.fixture(autouse=True)
def forget() -> None:
    """Each test begins with nothing remembered."""
    forget_traces()


def traces(*funs: Any) -> int:
    """How many of the functions are traced, one after the other."""
    count: list[Any] = []

    def trace(fun: Any) -> object:
        count.append(fun)
        return object()

    for fun in funs:
        traced_once("test", [fun], functools.partial(trace, fun))
    return len(count)


def scale_by(factor: Any) -> Callable[[Any], Any]:
    """A function made anew, which closes over a factor."""
    return lambda x: x * factor


def with_default(factor: Any) -> Callable[..., Any]:
    """The same with a default."""

    def fun(x: Any, factor: Any = factor) -> Any:
        return x * factor

    return fun


def with_keyword(factor: Any) -> Callable[..., Any]:
    """The same with a keyword."""

    def fun(x: Any, *, factor: Any = factor) -> Any:
        return x * factor

    return fun


def helper(x: Any) -> Any:
    """A function that others call."""
    return x * GLOBAL


def reads_settings(x: Any) -> Any:
    """A function that reads something that may change."""
    return x * SETTINGS["scale"]


MAKERS = [scale_by, with_default, with_keyword, lambda v: functools.partial(pow, v)]
SAME: list[Callable[[], Any]] = [
    lambda: 1,
    lambda: 1.5,
    lambda: math.nan,
    lambda: 1j,
    lambda: True,
    lambda: "text",
    lambda: b"bytes",
    lambda: None,
    lambda: ...,
    lambda: (1, (2.0, "x")),
    lambda: frozenset([1, 2]),
    lambda: slice(1, 2),
    lambda: range(3),
    lambda: np.float32(1.5),
    lambda: np.dtype("int8"),
    lambda: np.float32,
    lambda: np.sum,
    lambda: np.add,
    lambda: math.sin,
    lambda: operator.add,
    lambda: functools.reduce,
    lambda: len,
    lambda: X,
    lambda: extend.convert,
    lambda: helper,
    lambda: scale_by(3.0),
    lambda: jit(scale_by(3.0)),
    lambda: vmap(scale_by(3.0)),
    lambda: functools.partial(scale_by, 3),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("value", SAME)
def test_equal_immutable_things_make_the_same_function(make: Any, value: Any) -> None:
    assert traces(make(value()), make(value()), make(value())) == 1


@dataclass(frozen=True)
class Config:
    """A user's class: what its instances do may change with it."""

    scale: float


class Callables:
    """A user's callable."""

    def __call__(self, x: Any) -> Any:
        """Doubled."""
        return x * 2.0


SHARED = [1.0]
MAY_CHANGE: list[Callable[[], Any]] = [
    lambda: SHARED,
    lambda: SETTINGS,
    lambda: {1, 2},
    lambda: (1, SHARED),
    lambda: np.ones(3),
    lambda: SimpleNamespace(scale=1.0),
    lambda: Config(1.0),
    lambda: Config,
    lambda: Callables(),
    lambda: random.random,
    lambda: np.random.rand,
    lambda: np.vectorize(abs),
    lambda: SHARED.append,
    lambda: iter(SHARED),
    lambda: eval,
    lambda: reads_settings,
    lambda: jit(reads_settings),
    lambda: vmap(reads_settings),
    lambda: grad(scale_by(SHARED)),
    lambda: device_put(np.zeros(10_000)),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("value", MAY_CHANGE)
def test_what_may_change_is_traced_again_even_for_one_function(make: Any, value: Any) -> None:
    fun = make(value())
    assert traces(fun, fun) == 2


DIFFERENT: list[Any] = [
    range(0), range(2, 2), frozenset([0]), frozenset([0.0]), frozenset([-0.0]), complex(0, -0.0),
    0, 0.0, -0.0, False, 0j, "0", b"0", None, np.float32(0), np.int32(0), np.float64(0), (0,), (0.0,), (False,),
]  # fmt: skip


def test_values_of_different_types_make_different_functions() -> None:
    assert traces(*[scale_by(x) for x in DIFFERENT]) == len(DIFFERENT)


def programs() -> int:
    """How many compiled programs are alive."""
    gc.collect()
    return sum(isinstance(x, Executable) for x in gc.get_objects())


def test_forgetting_frees_the_programs_of_eager_functions() -> None:
    before = programs()
    for factor in (2.5, 3.5, 4.5):
        grad(lambda x: ((x * factor) ** 2).sum())(np.ones(int(factor), np.float32))  # noqa: B023
        closed_call(scale_by(factor))(X)
        X[int(factor) % 3]
    assert programs() > before + 6
    forget_traces()
    assert programs() <= before


def test_tables_of_programs_are_bounded() -> None:
    for factor in range(300):
        traced_once(("test", factor), [scale_by(1)], object)
    assert len(_traced._items) == 256


def test_of_functions_that_differ_by_numbers_a_few_are_remembered() -> None:
    forget_traces()
    made = [traced_once("test", [scale_by(factor)], object) for factor in range(100)]
    assert len(_traced._items) == FEW
    again = [traced_once("test", [scale_by(factor)], object) for factor in range(100 - FEW, 100)]
    assert again == made[-FEW:]
    assert traced_once("test", [scale_by(0)], object) is not made[0]


def test_jit_of_a_function_made_anew_is_traced_once() -> None:
    before = programs()
    for _ in range(5):
        np.testing.assert_array_equal(jit(scale_by(7.25))(X), np.asarray(X) * 7.25)
    assert programs() == before + 1
    jit(scale_by(-7.25))(X)
    jit(scale_by(7.25), donate_argnums=0)(X + 1)
    assert programs() >= before + 3


def test_jit_of_what_may_change_is_traced_anew() -> None:
    settings = {"scale": 2.0}
    seen = []
    for scale in (2.0, 3.0):
        settings["scale"] = scale
        seen.append(jit(lambda x: x * settings["scale"])(1.0).item())
    assert seen == [2.0, 3.0]


def test_a_jitted_function_keeps_no_argument_of_its_first_call() -> None:
    x = device_put(np.ones(3, np.float32))
    f = jit(lambda x: x + SETTINGS["scale"])
    f(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_so_many_dropped_programs_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_traced, "_limit", 2)
    before = programs()
    for size in range(20, 26):
        jit(scale_by(2.0))(np.ones(size, np.float32))
    assert programs() == before + 2
    forget_traces()
    assert programs() == before


def test_equal_arrays_are_not_the_same() -> None:
    one, two = (device_put(np.ones(2, np.float32)) for _ in range(2))
    assert traces(scale_by(one), scale_by(two), scale_by(one)) == 2


def test_code_counts() -> None:
    assert traces(lambda x: x + 1, lambda x: x + 2, lambda x: x + 1.0, lambda x: x + True) == 4


def test_a_global_that_is_changed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def direct(x: Any) -> Any:
        return x * GLOBAL

    def nested(x: Any) -> Any:
        return [y * GLOBAL for y in x] + [(lambda: GLOBAL)()]

    def through_another(x: Any) -> Any:
        return helper(x)

    for fun in (direct, nested, through_another):
        monkeypatch.undo()
        assert traces(fun, fun) == 1
        monkeypatch.setitem(globals(), "GLOBAL", 3.0)
        assert traces(fun) == 1
        monkeypatch.undo()
        assert traces(fun) == 0


def test_a_global_that_is_defined_later_counts() -> None:
    def fun(x: Any) -> Any:
        return x * DEFINED_LATER  # type: ignore[name-defined]  # noqa: F821  # it is

    assert traces(fun, fun) == 1
    globals()["DEFINED_LATER"] = 1.0
    assert traces(fun, fun) == 1
    del globals()["DEFINED_LATER"]


def test_what_is_taken_from_modules_counts() -> None:
    def trusted(x: Any) -> Any:
        return extend.convert(x, np.float32) * math.pi

    def drawn(x: Any) -> Any:
        return x * np.random.rand()

    def foreign(x: Any) -> Any:
        return x * random.random()

    def imports(x: Any) -> Any:
        from json import loads  # noqa: PLC0415  # what is tested

        return x * loads("1")

    assert traces(trusted, trusted) == 1
    for fun in (drawn, foreign, imports):
        assert traces(fun, fun) == 2


def test_a_function_that_sets_globals_is_traced_again() -> None:
    def fun(x: Any) -> Any:
        global GLOBAL
        GLOBAL = 2.0
        return x

    assert traces(fun, fun) == 2


def test_attributes_of_functions_may_change() -> None:
    def fun(x: Any) -> Any:
        return x * fun.scale  # type: ignore[attr-defined]

    fun.scale = 2.0  # type: ignore[attr-defined]
    assert traces(fun, fun) == 2


def test_a_name_that_was_copied_is_not_trusted() -> None:
    def fun(x: Any) -> Any:
        return x * SETTINGS["scale"]

    copied = functools.wraps(extend.convert)(fun)
    assert copied.__module__.startswith("fiveloop.")
    assert traces(copied, copied) == 2


def test_functions_that_call_each_other() -> None:
    def make() -> Any:
        def even(n: int) -> Any:
            return True if n == 0 else odd(n - 1)

        def odd(n: int) -> Any:
            return False if n == 0 else even(n - 1)

        return even

    assert traces(make(), make()) == 1


def test_a_variable_that_is_not_set_yet() -> None:
    def fun(x: Any) -> Any:
        return x * later

    assert traces(fun, fun) == 2
    later = 1.0
    assert traces(fun, fun) == 1


def test_the_key_counts_and_must_be_hashable() -> None:
    keys: list[Any] = [1, 2, 1, [1], [1]]
    results = [traced_once(key, [helper], object) for key in keys]
    assert len(set(results)) == 4


def test_within_a_trace_nothing_is_remembered() -> None:
    results: list[object] = []

    def traced(x: Any) -> Any:
        results.extend([traced_once("key", [helper], object) for _ in range(3)])
        return x

    jit(traced)(1.0)
    assert len(set(results)) == 3


def test_a_function_that_sets_a_variable_outside_is_traced_again() -> None:
    def make() -> Callable[[Any], Any]:
        last: Any = None

        def fun(x: Any) -> Any:
            nonlocal last
            last = 1
            return x

        return fun

    assert traces(make(), make()) == 2

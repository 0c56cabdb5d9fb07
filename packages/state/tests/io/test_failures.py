"""An exception of a function comes out of the program as it is, and leaves all else as it was."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import ShapeDtype, grad, jit, vmap
from fiveloop.state import callback, debug_callback, new_ref, pure_callback

FLOAT = ShapeDtype((), "float32")
X = np.float32(0.5)


def plain(fun: Any) -> Any:
    """The function itself."""
    return fun


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f(X),
    "jit": lambda f: jit(f)(X),
    "grad": lambda f: grad(f)(X),
    "jit of grad": lambda f: jit(grad(f))(X),
    "vmap": lambda f: vmap(f)(np.ones(3, "float32")),
    "jit of vmap": lambda f: jit(vmap(f))(np.ones(3, "float32")),
}


class Mishap(Exception):
    """An exception that cannot be made from its text."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("error", [Mishap(7, "no paper"), KeyError("x"), KeyboardInterrupt()])
def test_the_exception_itself_comes_back(name: str, error: BaseException) -> None:
    def fails(x: Any) -> None:
        raise error

    def fun(x: Any) -> Any:
        debug_callback(fails, x)
        return x * x

    with pytest.raises(type(error)) as caught:
        TRANSFORMS[name](fun)
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-1] == "fails"
    assert "test_the_exception_itself_comes_back" in names


def test_its_cause_stays() -> None:
    def fails(x: Any) -> None:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner

    with pytest.raises(ValueError, match="outer") as caught:
        jit(lambda x: debug_callback(fails, x))(X)
    assert isinstance(caught.value.__cause__, KeyError)


def test_calls_after_it_are_not_made_and_the_next_run_works() -> None:
    seen: list[str] = []
    failing = True

    def first(x: Any) -> Any:
        seen.append("first")
        if failing:
            raise Mishap(1, "once")
        return x

    @jit
    def fun(x: Any) -> Any:
        y = callback(first, FLOAT, x)
        debug_callback(lambda y: seen.append("second"), y)
        return y

    for _ in range(2):
        with pytest.raises(Mishap):
            fun(X)
    assert seen == ["first", "first"]
    failing = False
    assert fun(X) == X
    assert seen[2:] == ["first", "second"]


def test_refs_hold_what_they_held_before_the_run() -> None:
    ref = new_ref(np.arange(3, dtype="float32"))
    limit = 2.0

    def check(x: Any) -> None:
        if x > limit:
            raise Mishap(2, "too large")

    @jit
    def fun() -> Any:
        ref[...] = ref[...] + 1.0
        debug_callback(check, ref[2])
        return ref[0]

    with pytest.raises(Mishap):
        fun()
    assert np.array_equal(np.asarray(ref[...]), [0.0, 1.0, 2.0])
    limit = 3.0
    assert fun() == 1.0
    assert np.array_equal(np.asarray(ref[...]), [1.0, 2.0, 3.0])


def test_a_pure_function_may_fail_too() -> None:
    def fails(x: Any) -> Any:
        raise Mishap(3, "pure")

    ref = new_ref(X)

    @jit
    def fun(x: Any) -> Any:
        ref[...] = x
        return pure_callback(fails, FLOAT, x)

    with pytest.raises(Mishap):
        fun(X + 1)
    assert ref[...] == X


def test_each_thread_gets_its_own() -> None:
    def fails(x: Any) -> None:
        raise Mishap(int(x), "mine")

    fun = jit(lambda x: debug_callback(fails, x))
    codes: dict[int, list[int]] = {k: [] for k in range(4)}

    def work(k: int) -> None:
        for _ in range(10):
            try:
                fun(np.float32(k))
            except Mishap as error:
                codes[k].append(error.code)

    threads = [threading.Thread(target=work, args=(k,)) for k in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert codes == {k: [k] * 10 for k in range(4)}


def test_many_failures_of_one_run_are_forgotten() -> None:
    def fails(x: Any) -> None:
        raise Mishap(int(x), "one of many")

    @jit
    def fun(x: Any) -> None:
        for k in range(5):
            debug_callback(fails, x + k)

    for _ in range(30):
        with pytest.raises(Mishap):
            fun(np.float32(0))
    with pytest.raises(Mishap) as caught:
        jit(lambda x: debug_callback(fails, x))(np.float32(99))
    assert caught.value.code == 99


def test_a_run_that_waits_for_its_arguments() -> None:
    """Such a run goes on in a thread of XLA's."""

    def fails(x: Any) -> None:
        if x > 1:
            raise Mishap(int(x), "late")

    slow = jit(lambda x: (x @ x @ x @ x)[0, 0])
    fun = jit(lambda x: debug_callback(fails, x))
    x = np.full((400, 400), 0.1, "float32")
    for _ in range(3):
        fun(slow(0 * x))
        with pytest.raises(Mishap) as caught:
            fun(slow(x))
        assert caught.value.code == int(slow(x))

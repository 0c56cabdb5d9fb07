"""Loops outside of traces: a function made anew is traced and compiled once, and nothing stale is ever given."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fiveloop.core import forget_traces
from fiveloop.core.arrays.array import device_put
from fiveloop.core.backend import client
from fiveloop.core.primitives.special import sin
from fiveloop.core.trace.stage import StageTrace
from fiveloop.loops import cond, for_loop, fori_loop, map, scan, switch, while_loop
from fiveloop.state import new_ref

XS = np.arange(4, dtype=np.float32)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the programs that are compiled during a test; what was traced before is forgotten."""
    forget_traces()
    texts: list[str] = []
    original = client.compile_text

    def counting(text: str, *args: Any, **kwargs: Any) -> Any:
        texts.append(text)
        return original(text, *args, **kwargs)

    monkeypatch.setattr(client, "compile_text", counting)
    return texts


def by_for(f: Callable[[Any], Any]) -> Any:
    def body(i: Any, r: Any) -> None:
        r[i] = f(r[i])

    return for_loop(4, body, XS)


def by_while(f: Callable[[Any], Any]) -> Any:
    return while_loop(lambda v: v[0] < 4, lambda v: (v[0] + 1, f(v[1])), (0, XS))[1]


def by_condition(f: Callable[[Any], Any]) -> Any:
    def goes_on(v: Any) -> Any:
        return (v < 50.0) & (f(v) > -2.0)

    return while_loop(goes_on, lambda v: v + 1.0, np.float32(0.0))


LOOPS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "for": by_for,
    "scan": lambda f: scan(lambda c, x: (c + 1.0, f(x) + c), 0.0, XS),
    "scan carry": lambda f: scan(lambda c, x: (f(c), None), XS, None, 2),
    "fori": lambda f: fori_loop(0, 3, lambda i, v: f(v), XS),
    "map": lambda f: map(lambda x: f(x), XS),
    "batched map": lambda f: map(lambda x: f(x), XS, batch_size=2),
    "while": by_while,
    "condition": by_condition,
    "cond": lambda f: cond(True, lambda x: f(x), lambda x: x, XS),
    "switch": lambda f: switch(1, [lambda x: x, lambda x: f(x)], XS),
}
every_loop = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


def leaves(out: Any) -> list[Any]:
    """Results as NumPy arrays."""
    return [np.asarray(x) for x in (out if isinstance(out, tuple) else [out]) if x is not None]


def flat(out: Any) -> list[Any]:
    """The leaves of results one tuple deep."""
    return [x for part in (out if isinstance(out, tuple) else [out]) for x in leaves(part)]


@every_loop
def test_a_function_made_anew_is_traced_and_compiled_once(
    loop: Any, programs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def call() -> Any:
        return loop(lambda x: sin(x) * 3.0 + 1.0)

    first = flat(call())
    programs.clear()

    traced: list[Any] = []
    original = StageTrace.__init__

    def counting(self: Any, *args: Any, **kwargs: Any) -> None:
        traced.append(self)
        original(self, *args, **kwargs)

    monkeypatch.setattr(StageTrace, "__init__", counting)
    for _ in range(3):
        for one, other in zip(flat(call()), first, strict=True):
            np.testing.assert_array_equal(one, other)
    assert programs == []
    assert traced == []


@every_loop
def test_bodies_that_differ_only_in_an_array_share_a_program(
    loop: Any, programs: list[str]
) -> None:
    def call(number: float) -> Any:
        weights = device_put(np.full(1, number, np.float32))
        return loop(lambda x: sin(x) * weights[0] + 1.0)

    flat(call(3.0))
    programs.clear()
    results = [flat(call(number)) for number in (5.0, 7.0)]
    assert programs == []
    for number, result in zip((5.0, 7.0), results, strict=True):
        expected = flat(loop(lambda x, number=number: sin(x) * np.float32(number) + 1.0))
        for one, other in zip(result, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def changed_list() -> tuple[Any, Callable[[float], None]]:
    held = [3.0]
    return (lambda: held[0]), lambda v: held.__setitem__(0, v)


def changed_object() -> tuple[Any, Callable[[float], None]]:
    held = SimpleNamespace(scale=3.0)
    return (lambda: held.scale), lambda v: setattr(held, "scale", v)


def changed_array() -> tuple[Any, Callable[[float], None]]:
    held = np.full(1, 3.0, np.float32)
    return (lambda: held), lambda v: held.fill(v)


def changed_ref() -> tuple[Any, Callable[[float], None]]:
    held = new_ref(np.full(1, 3.0, np.float32))
    return (lambda: held[0]), lambda v: held.__setitem__(0, v)


def changed_variable() -> tuple[Any, Callable[[float], None]]:
    held = 3.0

    def change(v: float) -> None:
        nonlocal held
        held = v

    return (lambda: held), change


def changed_binding() -> tuple[Any, Callable[[float], None]]:
    held = device_put(np.full(1, 3.0, np.float32))

    def change(v: float) -> None:
        nonlocal held
        held = device_put(np.full(1, v, np.float32))

    return (lambda: held), change


CHANGES = [
    changed_list, changed_object, changed_array, changed_ref, changed_variable, changed_binding,
]  # fmt: skip


@every_loop
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_calls_is_seen(loop: Any, change: Any) -> None:
    read, write = change()

    def body(x: Any) -> Any:
        return (x + 1.0) * (np.asarray(y).sum() if isinstance(y := read(), np.ndarray) else one(y))

    def one(y: Any) -> Any:
        return y if isinstance(y, float) or not y.ndim else y[0]

    for number in (3.0, 5.0, 4.0, 3.0):
        write(number)
        expected = flat(loop(lambda x, number=number: (x + 1.0) * np.float32(number)))
        for found, wanted in zip(flat(loop(body)), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_types_of_arguments_are_told_apart() -> None:
    def step(c: Any, x: Any) -> Any:
        return c + x, c * x

    for dtype in (np.float32, np.int32, np.float64):
        total, products = scan(step, np.zeros((), dtype), np.arange(4).astype(dtype))
        assert total.dtype == products.dtype == dtype
        np.testing.assert_array_equal(np.asarray(products), [0, 0, 2, 9])
    total, products = scan(step, np.zeros((), np.int32), np.arange(4, dtype=np.int32), reverse=True)
    np.testing.assert_array_equal(np.asarray(products), [0, 5, 6, 0])


def test_structures_and_lengths_are_told_apart() -> None:
    def step(c: Any, x: Any) -> Any:
        return c, c

    assert scan(step, (1.0,), None, 2)[1][0].shape == (2,)
    assert scan(step, {"a": 1.0}, None, 2)[1]["a"].shape == (2,)
    assert scan(step, {"a": 1.0}, None, 3)[1]["a"].shape == (3,)
    assert scan(step, {"a": 1.0}, None, 0)[1]["a"].shape == (0,)


def test_an_error_is_raised_at_every_call() -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match="must return a pair"):
            scan(lambda c, x: c, 0.0, XS)  # type: ignore[arg-type,return-value]  # what is tested


def test_a_loop_over_a_ref_is_compiled_once_and_updates_in_place(programs: list[str]) -> None:
    ref: Any = new_ref(np.zeros(8, np.float32))
    ref[0] = 0.0
    before = ref.array.buffer.unsafe_buffer_pointer()
    for k in range(3):
        if k == 1:
            programs.clear()

        def body(i: Any, _: Any) -> None:
            ref[i] += 1.0

        for_loop(8, body, ())
        assert ref.array.buffer.unsafe_buffer_pointer() == before
    assert programs == []
    np.testing.assert_array_equal(np.asarray(ref[...]), np.full(8, 3.0))

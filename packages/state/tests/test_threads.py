"""A Ref is safe to share: what threads do to it takes effect whole, one after the other."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fiveloop.core import ShapeDtype, jit
from fiveloop.core.arrays.sharing import Turn, take
from fiveloop.loops import fori_loop
from fiveloop.state import (
    KeyStream,
    accumulate,
    callback,
    debug_callback,
    freeze,
    new_ref,
    pure_callback,
    swap,
)

SECONDS = 60
"""After so long a test that hangs fails."""
FLOAT = ShapeDtype((), "float32")


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*tasks: Callable[[], object]) -> list[Any]:
    """What tasks give that run in a thread each, all at once."""
    barrier = threading.Barrier(len(tasks))

    def run(task: Callable[[], object]) -> object:
        barrier.wait(SECONDS)
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [done.result(SECONDS) for done in [pool.submit(run, task) for task in tasks]]


def often(task: Callable[[], object], times: int = 50) -> Callable[[], None]:
    """A task, done many times."""

    def run() -> None:
        for _ in range(times):
            task()

    return run


def zeros(n: int = 4) -> Any:
    return new_ref(np.zeros(n, np.float32))


def adding(k: int) -> Callable[[Any], None]:
    @jit
    def add(r: Any) -> None:
        r[k] = r[k] + 1.0

    add(zeros())
    return add


def looping(r: Any) -> None:
    def step(i: Any, _: Any) -> None:
        r[i] = r[i] + 1.0

    fori_loop(0, 4, step, None)


def test_jitted_functions_of_two_threads_lose_no_write() -> None:
    r, adds = zeros(), [adding(0), adding(1)]
    at_once(*[often(lambda f=f: f(r), 200) for f in adds])  # type: ignore[misc]
    assert r[...].tolist() == [200, 200, 0, 0]


def test_functions_that_close_over_a_ref_lose_no_write() -> None:
    r = zeros()

    @jit
    def up() -> None:
        r[0] = r[0] + 1.0

    up()
    at_once(*[often(up)] * 4)
    assert r[0].item() == 201


def test_eager_loops_of_threads_lose_no_write() -> None:
    r = zeros()
    at_once(*[often(lambda: looping(r), 20)] * 3)
    assert r[...].tolist() == [60] * 4


def add_eagerly(r: Any) -> None:
    r[0] += 1.0


def add_to_a_part(r: Any) -> None:
    r.at[:2][0] += 1.0


def add_at_a_mask(r: Any) -> None:
    r[np.array([True, False, False, False])] += 1.0


def accumulated(r: Any) -> None:
    accumulate(r, 0, 1.0)


EAGER = [add_eagerly, add_to_a_part, add_at_a_mask, accumulated]


@pytest.mark.parametrize("add", EAGER)
def test_eager_additions_of_eight_threads_all_count(add: Callable[[Any], None]) -> None:
    r, jitted = zeros(), adding(1)
    at_once(*[often(lambda: add(r))] * 8, often(lambda: jitted(r)))
    assert r[...].tolist() == [400, 50, 0, 0]


def test_a_write_at_a_mask_leaves_the_rest_to_others() -> None:
    r = zeros()
    mask = np.array([False, True, True, False])
    values = np.array([0, 5, 6, 0], np.float32)

    def masked() -> None:
        r[mask] = values

    at_once(often(masked), often(lambda: add_eagerly(r)))
    assert r[...].tolist() == [50, 5, 6, 0]


def test_swaps_hand_each_value_on_once() -> None:
    r = zeros(1)
    numbers = np.arange(1, 201, dtype=np.float32).reshape(4, 50)
    seen = at_once(*[lambda row=row: [swap(r, 0, x).item() for x in row] for row in numbers])
    assert sorted([*[x for row in seen for x in row], r[0].item()]) == [0, *range(1, 201)]


def test_one_thread_writes_and_two_read() -> None:
    r, add = zeros(), adding(0)
    look = jit(lambda r: r[0] + r[1])
    look(r)
    reads = [lambda: r[0], lambda: r[...], lambda: look(r), lambda: copy.copy(r), lambda: repr(r)]
    at_once(often(lambda: add(r), 200), *[often(read, 100) for read in reads])
    assert r[0].item() == 200


def test_two_refs_are_written_together() -> None:
    a, b = zeros(1), zeros(1)

    @jit
    def both(x: Any, y: Any) -> None:
        x[0] += 1.0
        y[0] += 1.0

    differ = jit(lambda x, y: x[0] - y[0])
    both(a, b), differ(a, b)
    found: list[float] = []
    at_once(
        often(lambda: both(a, b)),
        often(lambda: both(b, a)),
        often(lambda: found.append(differ(a, b).item())),
    )
    assert set(found) == {0.0}
    assert (a[0].item(), b[0].item()) == (101, 101)


def test_a_ref_is_frozen_by_one_thread_alone() -> None:
    r = zeros()

    def end() -> bool:
        try:
            freeze(r)
        except RuntimeError:
            return False
        return True

    assert sum(at_once(*[end] * 4)) == 1


def test_threads_take_different_keys_of_one_stream() -> None:
    stream = KeyStream(0)
    stream.key()
    keys = at_once(*[lambda: [tuple(stream.key().tolist()) for _ in range(20)]] * 4)
    assert len({key for row in keys for key in row}) == 80


def test_programs_that_call_python_lose_no_write() -> None:
    r = zeros()
    seen: list[Any] = []

    @jit
    def step(r: Any) -> None:
        debug_callback(seen.append, r[0])
        r[0] = r[0] + 1.0

    step(r)
    at_once(*[often(lambda: step(r), 20)] * 3, often(lambda: add_eagerly(r), 20))
    assert r[0].item() == 81
    assert len(seen) == 61


@pytest.mark.parametrize("ask", [callback, pure_callback])
def test_a_call_sees_what_a_ref_held_before_its_program(ask: Callable[..., Any]) -> None:
    r = zeros()

    @jit
    def step(r: Any, x: Any) -> Any:
        r[0] = 5.0
        return ask(lambda x: np.float32(r_[0].item() + x), FLOAT, x)

    r_ = r
    assert step(r, np.float32(1.0)).item() == 1.0
    assert step(r, np.float32(1.0)).item() == 6.0


@pytest.mark.parametrize("size", [1, 100_000])  # the longer program runs in a thread of its own
def test_a_write_that_would_be_lost_is_refused(size: int) -> None:
    r, add = zeros(size), adding(0)
    before = r[0].item()

    @jit
    def step(r: Any, write: Any) -> None:
        debug_callback(lambda _: (add if size == 4 else add_eagerly)(r_), r[...].sum())
        r[...] = r[...] + write

    r_ = r
    with pytest.raises(
        RuntimeError, match=r"a Ref was written in a call from a program.*\n  at .*test_threads"
    ):
        step(r, 1.0)
    assert r[0].item() == before
    add_eagerly(r)
    assert r[0].item() == before + 1


def test_a_call_may_write_what_its_program_only_reads() -> None:
    r, nested = zeros(), adding(1)

    def write(_: Any) -> None:
        add_eagerly(r)
        nested(r)

    @jit
    def look(r: Any) -> Any:
        debug_callback(write, r[0])
        return r[0] + r[1]

    before = r[...]
    assert [look(r).item(), look(r).item()] == [0, 2]
    assert r[...].tolist() == [2, 2, 0, 0]
    assert before.tolist() == [0] * 4


def test_a_call_waits_for_the_program_of_another_thread() -> None:
    log, r, inside = zeros(), zeros(), threading.Event()

    def stay(_: Any) -> None:
        inside.set()
        threading.Event().wait(0.2)

    @jit
    def slow(log: Any) -> None:
        debug_callback(stay, log[0])
        log[0] = log[0] + 1.0

    @jit
    def logging(r: Any) -> None:
        debug_callback(lambda _: add_eagerly(log), r[0])
        r[0] = r[0] + 1.0

    at_once(lambda: slow(log), lambda: inside.wait(SECONDS) and logging(r))
    assert log[0].item() == 2


def test_programs_that_wait_for_each_other_are_told() -> None:
    one, other, both = zeros(), zeros(), threading.Barrier(2)

    def crossing(its: Any) -> Callable[[Any], None]:
        def meet(_: Any) -> None:
            both.wait(SECONDS)
            add_eagerly(its)

        @jit
        def cross(r: Any) -> None:
            debug_callback(meet, r[0])
            r[0] = r[0] + 1.0

        return cross

    def run(f: Callable[[Any], None], r: Any) -> str:
        try:
            f(r)
        except RuntimeError as error:
            return str(error)
        return ""

    first, second = crossing(other), crossing(one)
    told = at_once(lambda: run(first, one), lambda: run(second, other))
    assert sum("two programs that call Python wait for each other" in text for text in told) == 1
    assert [one[0].item(), other[0].item()] == [1, 1]


def test_a_number_that_was_read_is_not_added_to_what_was_written_since() -> None:
    r = zeros()
    f = jit(lambda: r.__setitem__(0, 5.0))
    for write in (lambda: r.__setitem__(0, 5.0), f, f, lambda: swap(r, 0, 5.0)):
        r[0] = 1.0
        x = r[0]
        write()
        x += 1.0
        r[0] = x
        assert r[0].item() == 2.0


def test_ctrl_c_while_waiting_for_a_ref_leaves_the_others_free() -> None:
    class Pressed(Turn):  # type: ignore[misc]  # see Turn
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            raise KeyboardInterrupt

    first = Turn()
    with pytest.raises(KeyboardInterrupt):
        take((first, Pressed()), ())
    assert at_once(lambda: first.acquire(blocking=False)) == [True]

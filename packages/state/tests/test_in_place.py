"""A Ref that nobody shares is updated in its own memory; what was read from it, or what it was made from, stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import Array, ds, jit
from fiveloop.core.arrays.array import device_put
from fiveloop.core.backend.client import Executable
from fiveloop.state import accumulate, new_ref, swap

Write = Callable[[Any, int], None]


def eager_set(ref: Any, i: int) -> None:
    ref[i] = 1.0


def eager_add(ref: Any, i: int) -> None:
    ref[i] += 1.0


jitted_set: Write = jit(eager_set)
jitted_add: Write = jit(eager_add)


def closed_over(ref: Any, i: int) -> None:
    jit(lambda k: eager_set(ref, k))(i)


WRITES = [eager_set, eager_add, jitted_set, jitted_add, closed_over]
every_write = pytest.mark.parametrize(
    "write", WRITES, ids=["set", "add", "jitted set", "jitted add", "closed over"]
)


def place(ref: Any) -> int:
    """Where in memory a Ref's contents are."""
    return int(ref.array.buffer.unsafe_buffer_pointer())


@every_write
def test_a_ref_that_nobody_shares_is_updated_in_place(write: Write) -> None:
    ref: Any = new_ref(np.zeros(8, np.float32))
    write(ref, 0)
    before = place(ref)
    for i in range(1, 4):
        write(ref, i)
        assert place(ref) == before
    np.testing.assert_array_equal(np.asarray(ref[...]), [1, 1, 1, 1, 0, 0, 0, 0])


@every_write
def test_what_a_ref_was_made_from_stays(write: Write) -> None:
    x = device_put(np.zeros(3, np.float32))
    one, two = new_ref(x), new_ref(x)
    write(one, 0)
    write(two, 1)
    np.testing.assert_array_equal(np.asarray(x), [0, 0, 0])
    np.testing.assert_array_equal(np.asarray(one[...]), [1, 0, 0])
    np.testing.assert_array_equal(np.asarray(two[...]), [0, 1, 0])


@every_write
def test_what_was_read_stays_and_is_copied_once(write: Write) -> None:
    ref: Any = new_ref(np.zeros(3, np.float32))
    write(ref, 0)
    read = ref[...]
    view = np.asarray(read)
    shared = place(ref)
    assert read.buffer.unsafe_buffer_pointer() == shared
    write(ref, 1)
    copied = place(ref)
    assert copied != shared
    write(ref, 2)
    assert place(ref) == copied
    np.testing.assert_array_equal(view, [1, 0, 0])
    np.testing.assert_array_equal(np.asarray(read), [1, 0, 0])
    np.testing.assert_array_equal(np.asarray(ref[...]), [1, 1, 1])


def test_reading_a_part_does_not_share() -> None:
    ref: Any = new_ref(np.zeros(3, np.float32))
    ref[0] = 1.0
    before = place(ref)
    whole = ref[:]
    assert whole.buffer.unsafe_buffer_pointer() != before
    assert float(ref[1]) == 0.0
    ref[1] = 2.0
    assert place(ref) == before
    np.testing.assert_array_equal(np.asarray(whole), [1, 0, 0])


def test_the_array_written_to_the_whole_ref_stays() -> None:
    ref, x = new_ref(np.zeros(3, np.float32)), device_put(np.arange(3, dtype=np.float32))
    ref[...] = x
    ref[0] = 9.0
    ref[...] = x
    jitted_set(ref, 1)
    np.testing.assert_array_equal(np.asarray(x), [0, 1, 2])
    np.testing.assert_array_equal(np.asarray(ref[...]), [0, 1, 2])


def test_a_result_and_the_contents_of_the_ref_do_not_share() -> None:
    def write_and_read(ref: Any) -> Any:
        ref[0] = ref[0] + 1.0
        return ref[...]

    ref: Any = new_ref(np.zeros(2, np.float32))
    results = [jit(write_and_read)(ref) for _ in range(3)]
    np.testing.assert_array_equal(np.stack(results), [[1, 0], [2, 0], [3, 0]])


def test_a_ref_is_not_given_away_by_donating_it() -> None:
    ref: Any = new_ref(np.arange(3, dtype=np.float32))
    total = jit(lambda r: r[...] * 2.0, donate_argnums=0)(ref)
    np.testing.assert_array_equal(np.asarray(total), [0, 2, 4])
    np.testing.assert_array_equal(np.asarray(ref[...]), [0, 1, 2])


def test_a_program_that_fails_before_it_starts_leaves_the_ref(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ref: Any = new_ref(np.zeros(2, np.float32))
    jitted_set(ref, 0)

    def fail(self: Executable, args: Any, use: Any) -> None:
        raise RuntimeError("no device")

    with monkeypatch.context() as patch:
        patch.setattr(Executable, "execute_for", fail)
        with pytest.raises(RuntimeError, match="no device"):
            jitted_set(ref, 1)
    np.testing.assert_array_equal(np.asarray(ref[...]), [1, 0])


def test_a_program_that_fails_with_the_contents_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ref: Any = new_ref(np.zeros(2, np.float32))
    jitted_set(ref, 0)
    original = Executable.execute

    def fail(self: Executable, args: Any, use: Any) -> None:
        original(self, args)
        raise RuntimeError("the device was lost")

    with monkeypatch.context() as patch:
        patch.setattr(Executable, "execute_for", fail)
        with pytest.raises(RuntimeError, match="the device was lost"):
            jitted_set(ref, 1)
    assert repr(ref) == "Ref(lost)"
    message = (
        r"the Ref of type Ref\{f32\[2\]\} has lost its contents: a program that was updating it in place failed, "
        r"or an array that shared its memory was donated; make a new Ref with new_ref\n  at .*test_in_place.py"
    )
    for use in (lambda: ref[...], lambda: ref[0], lambda: jitted_set(ref, 1)):
        with pytest.raises(RuntimeError, match=message):
            use()


def test_an_array_of_a_frozen_ref_stays() -> None:
    ref: Any = new_ref(np.zeros(2, np.float32))
    jitted_set(ref, 0)
    out = ref.end()
    assert isinstance(out, Array)
    again: Any = new_ref(out)
    jitted_set(again, 1)
    np.testing.assert_array_equal(np.asarray(out), [1, 0])


def add_at_a_run_time_place(ref: Any, i: Any, x: Any) -> None:
    ref[ds(i, 100)] += x


def add_at_a_known_place(ref: Any, i: Any, x: Any) -> None:
    ref[5:105] += x


def add_with_gaps(ref: Any, i: Any, x: Any) -> None:
    ref[5:205:2] += x


def set_with_gaps(ref: Any, i: Any, x: Any) -> None:
    ref[5:205:2] = x


def swap_at_a_run_time_place(ref: Any, i: Any, x: Any) -> Any:
    return swap(ref, ds(i, 100), x)


def swap_at_a_known_place(ref: Any, i: Any, x: Any) -> Any:
    return swap(ref, slice(5, 105), x)


def swap_in_a_number(ref: Any, i: Any, x: Any) -> Any:
    return swap(ref, 3, 0.0)


def exchange(ref: Any, i: Any, x: Any) -> None:
    one = ref[i]
    ref[i] = ref[i + 7]
    ref[i + 7] = one


def read_then_write(ref: Any, i: Any, x: Any) -> Any:
    before = ref[ds(i, 100)] * 2.0
    ref[ds(i + 50, 100)] = x
    return before


def write_twice(ref: Any, i: Any, x: Any) -> Any:
    before = ref[ds(i, 100)]
    ref[ds(i, 100)] = x
    ref.at[i + 9][...] += 1.0
    accumulate(ref, ds(i + 50, 100), before, "max")
    return before


def in_a_call(ref: Any, i: Any, x: Any) -> Any:
    return jit(swap_at_a_run_time_place)(ref, i, x)


ONCE = [
    add_at_a_run_time_place,
    add_at_a_known_place,
    add_with_gaps,
    set_with_gaps,
    swap_at_a_run_time_place,
    swap_at_a_known_place,
    swap_in_a_number,
    exchange,
    read_then_write,
    write_twice,
    in_a_call,
]
HELD = np.arange(2**15, dtype=np.float32)


def whole_copies(program: str) -> list[str]:
    """The lines of an optimised program that copy a whole array, or go over one to change a part of it."""
    whole = f"f32[{len(HELD)}]{{0}}"
    copies = [line for line in program.splitlines() if f"= {whole} copy(" in line]
    for body in program.split("\n}\n"):
        # One that is read at a known place beside an update is gone over element by element.
        read = [line for line in body.splitlines() if "f32[" in line and " slice(" in line]
        if f"{whole} dynamic-update-slice(" in body and "ENTRY" not in body:
            copies += read
    return copies


@pytest.mark.parametrize("fun", ONCE, ids=[f.__name__ for f in ONCE])
def test_code_outside_of_loops_changes_a_part_in_place(fun: Any) -> None:
    x, ref, expected = np.full(100, 2.0, np.float32), new_ref(HELD), new_ref(HELD)
    compiled = jit(fun).lower(ref, 40, x).compile()
    assert whole_copies(compiled.as_text()) == []
    before, want = jit(fun)(ref, 40, x), fun(expected, 40, x)
    np.testing.assert_array_equal(np.asarray(ref[...]), np.asarray(expected[...]))
    if want is not None:
        np.testing.assert_array_equal(before, want)

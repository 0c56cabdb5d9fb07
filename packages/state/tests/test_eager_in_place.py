"""Refs outside of traces: every write is in the Ref's own memory, and no array that was read changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.index.eager import LARGE
from fiveloop.state import accumulate, addupdate, ds, new_ref, set, swap

TWO = to_array(as_value(np.int32(2)))
PICKS = to_array(as_value(np.array([3, 5, 3], np.int32)))
INDICES: dict[str, tuple[Any, Any]] = {
    "integer": (3, 3),
    "slice": (slice(2, 9), slice(2, 9)),
    "stride": (slice(1, 20, 3), slice(1, 20, 3)),
    "backward": (slice(20, 1, -3), slice(20, 1, -3)),
    "integer at run time": (TWO, 2),
    "span": (ds(TWO, 4), slice(2, 6)),
    "span with a stride": (ds(TWO, 4, 2), slice(2, 10, 2)),
    "array": (PICKS, np.array([3, 5, 3])),
    "known array": (np.array([1, 7]), np.array([1, 7])),
}


def address(ref: Any) -> int:
    """Where what a Ref holds lies in memory."""
    return int(ref.array.buffer.unsafe_buffer_pointer())


def host_max(array: Any, index: Any, x: Any) -> None:
    np.maximum.at(array, index, x)


WRITES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "set": (set, lambda a, i, x: a.__setitem__(i, x)),
    "add": (addupdate, np.add.at),
    "max": (lambda r, i, x: accumulate(r, i, x, "max"), host_max),
    "swap": (swap, lambda a, i, x: a.__setitem__(i, x)),
    "in place": (lambda r, i, x: r.__setitem__(i, r[i].__iadd__(x)), np.add.at),
    "part": (lambda r, i, x: r.at[i].__setitem__(..., x), lambda a, i, x: a.__setitem__(i, x)),
}


@pytest.mark.parametrize("size", [64, LARGE + 64])
@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_in_place_and_changes_no_array(write: str, name: str, size: int) -> None:
    library, host = WRITES[write]
    index, twin = INDICES[name]
    ref, want = new_ref(np.linspace(0.0, 1.0, size)), np.linspace(0.0, 1.0, size)
    ref[0] = want[0] = 7.0
    here = address(ref)
    library(ref, index, 0.25)
    host(want, twin, 0.25)
    assert address(ref) == here
    kept = ref[...]
    seen = np.asarray(kept)
    before = want.copy()
    library(ref, index, 0.5)
    host(want, twin, 0.5)
    np.testing.assert_array_equal(np.asarray(kept), before)
    np.testing.assert_array_equal(seen, before)
    np.testing.assert_array_equal(np.asarray(ref[...]), want)


@pytest.mark.parametrize("index", [3, slice(None), ds(TWO, 4)])
def test_a_compiled_write_changes_no_array(index: Any) -> None:
    ref = new_ref(np.zeros(16))
    write = jit(lambda r, x: set(r, index, x))
    write(ref, 1.0)
    kept = ref[...]
    seen = np.asarray(kept)
    before = seen.copy()
    write(ref, 2.0)
    np.testing.assert_array_equal(np.asarray(kept), before)
    np.testing.assert_array_equal(seen, before)
    assert float(ref[3]) == 2.0

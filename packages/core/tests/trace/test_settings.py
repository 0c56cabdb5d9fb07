"""Settings: what a block chooses is part of the key of kept traces, in that block and thread alone."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit
from fiveloop.core.trace.modes import Setting
from fiveloop.core.trace.same_function import traced_once

SCALE = Setting("scale", 1.0)
SHIFT = Setting("shift", 0.0)


def test_a_block_changes_the_value_and_gives_it_back() -> None:
    with SCALE.to(2.0), SHIFT.to(1.0), SCALE.to(3.0):
        assert (SCALE.value, SHIFT.value) == (3.0, 1.0)
    with pytest.raises(KeyError), SCALE.to(2.0):
        raise KeyError
    assert SCALE.value == 1.0


@pytest.mark.parametrize("leaves", [1, 12])
def test_jitted_functions_are_traced_for_each_value(leaves: int) -> None:
    traced: list[float] = []

    @jit
    def scaled(*xs: Any) -> Any:
        traced.append(SCALE.value)
        return xs[0] * SCALE.value

    xs = [2.0] * leaves
    got = [float(scaled(*xs)), float(scaled(*xs))]
    with SCALE.to(3.0):
        got += [float(scaled(*xs)), float(scaled(*xs))]
        with SCALE.to(1.0):
            got.append(float(scaled(*xs)))
    got.append(float(scaled(*xs)))
    assert got == [2.0, 2.0, 6.0, 6.0, 2.0, 2.0]
    assert traced == [1.0, 3.0]


def test_functions_traced_once_are_traced_for_each_value() -> None:
    made: list[object] = []

    def trace() -> object:
        made.append(object())
        return made[-1]

    def same() -> object:
        return traced_once("settings", [np.sin], trace)

    with SCALE.to(5.0):
        inside = same()
    assert same() is not inside
    with SCALE.to(5.0):
        assert same() is inside


def test_other_threads_keep_theirs() -> None:
    seen: list[float] = []
    with SCALE.to(2.0):
        thread = threading.Thread(target=lambda: seen.append(SCALE.value))
        thread.start()
        thread.join()
    assert seen == [1.0]

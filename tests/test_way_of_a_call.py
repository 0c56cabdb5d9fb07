"""The table of CONTRIBUTING.md: which files the first call of a gradient enters, and in which order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit
from fiveloop.loops import for_loop
from fiveloop.state import new_ref

ROOT = Path(__file__).parent.parent
SECTION = "## How a call runs\n"


MOST_FILES = 90
"""How many files a first call enters at most."""
MOST_FILES_OF_AN_UPDATE = 12
"""How many files an eager `r[i] += x` enters at most, once its programs are compiled."""


def _gradient(x: Any) -> Any:
    def step(i: Any, refs: Any) -> None:
        a, b = refs
        a[i + 1] += b[i] * fnp.sin(a[i])
        b[i + 1] = a[i] * b[i]

    a, b = for_loop(12, step, (x, x * 2))
    return (a * b).sum()


def _of_scalars(x: Any) -> Any:
    def step(i: Any, refs: Any) -> None:
        a, b = refs
        a[()] += b[()] * x
        b[()] = a[()] * x

    return for_loop(4, step, (x, x))[0]


def _told() -> list[str]:
    """The files of the table."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split(SECTION)[1].split("\n## ")[0]
    return re.findall(r"^\| `([\w/]+\.py)` \|", section, re.MULTILINE)


def _functions(fun: Any, *args: Any) -> list[tuple[str, str]]:
    """The functions of the library that a call enters, in their order, each with its file."""
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        _, library, file = frame.f_code.co_filename.rpartition("/fiveloop/")
        if event == "call" and library:
            found.append((file, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        fun(*args)
    finally:
        sys.setprofile(None)
    return found


def _entered(of: Any, x: Any) -> list[str]:
    """The files of the library that the first call of a gradient enters, each where it is entered first."""
    return list(dict.fromkeys(file for file, _ in _functions(jit(grad(of)), x)))


def test_the_first_call_goes_through_the_files_of_the_table_in_their_order() -> None:
    told, entered = _told(), _entered(_gradient, fnp.ones(13))
    assert len(told) > 20
    assert [file for file in entered if file in told] == told
    assert len(entered) <= MOST_FILES


def test_the_first_call_on_two_scalars_enters_few_files() -> None:
    assert len(_entered(_of_scalars, fnp.float32(1.5))) <= MOST_FILES


UPDATES = {
    "number": (2, 1.5),
    "array": (2, fnp.float32(1.5)),
    "row": (..., fnp.ones(8)),
    "part": (slice(1, 4), fnp.ones(3)),
    "NumPy's index": (np.int64(2), 1.5),
}


@pytest.mark.parametrize(("index", "x"), UPDATES.values(), ids=UPDATES)
def test_an_eager_update_enters_few_files_and_adds_once(index: Any, x: Any) -> None:
    r = new_ref(fnp.zeros(8))

    def update() -> None:
        r[index] += x

    for _ in range(3):
        update()
    entered = _functions(update)
    assert len({file for file, _ in entered}) <= MOST_FILES_OF_AN_UPDATE
    assert entered.count(("core/index/eager.py", "_put")) == 1
    assert [f for f in entered if f[1] in ("call", "computed")] == []  # no operation on arrays runs


@pytest.mark.parametrize("x", [np.float32(1.5), np.ones(8, np.float32)], ids=["number", "array"])
def test_an_eager_update_by_numpy_adds_once(x: Any) -> None:
    r = new_ref(fnp.zeros(8))
    r[...] += x
    entered = _functions(lambda: r.__setitem__(..., r[...].__iadd__(x)))
    assert "core/primitives/family.py" not in {file for file, _ in entered}  # where `+` is bound
    np.testing.assert_array_equal(np.asarray(r[...]), 2 * np.broadcast_to(x, 8))


def test_a_sum_keeps_the_numbers_that_numpy_held() -> None:
    r, x = new_ref(fnp.zeros(2)), np.ones(2, np.float32)
    later = r[...]
    later += x
    x[...] = 5.0
    np.testing.assert_array_equal(np.asarray(later), np.ones(2))

"""The table of CONTRIBUTING.md: which files the first call of a gradient enters, and in which order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit
from fiveloop.loops import for_loop

ROOT = Path(__file__).parent.parent
SECTION = "## The way of a call\n"


MOST_FILES = 90
"""How many files a first call enters at most."""


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


def _entered(of: Any, x: Any) -> list[str]:
    """The files of the library that the first call of a gradient enters, each where it is entered first."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, arg: object) -> None:
        _, library, file = frame.f_code.co_filename.rpartition("/fiveloop/")
        if event == "call" and library:
            found.setdefault(file)

    fun = jit(grad(of))
    sys.setprofile(note)
    try:
        fun(x)
    finally:
        sys.setprofile(None)
    return list(found)


def test_the_first_call_goes_through_the_files_of_the_table_in_their_order() -> None:
    told, entered = _told(), _entered(_gradient, fnp.ones(13))
    assert len(told) > 20
    assert [file for file in entered if file in told] == told
    assert len(entered) <= MOST_FILES


def test_the_first_call_on_two_scalars_enters_few_files() -> None:
    assert len(_entered(_of_scalars, fnp.float32(1.5))) <= MOST_FILES

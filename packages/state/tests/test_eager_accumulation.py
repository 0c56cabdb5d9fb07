"""`ref[i] += x` where nothing is traced: one accumulation, whose sum nobody else asks for."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from fiveloop.core import arrays, jit, make_jaxpr
from fiveloop.state import new_ref


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The sums that operators form, one by one."""
    found: list[tuple[Any, Any]] = []
    add = arrays.OPS["add"]

    def counted(x: Any, y: Any) -> Any:
        found.append((x, y))
        return add(x, y)

    monkeypatch.setitem(arrays.OPS, "add", counted)
    return found


def test_the_sum_is_formed_where_it_is_written_and_nowhere_else(sums: list[Any]) -> None:
    r = new_ref(np.arange(4, dtype=np.float32))
    one = r[0] + 1.0
    for _ in range(2):
        r[1] += 1.0
        r[1:3] += 2
        r[3] += one
    assert r[...].tolist() == [0.0, 7.0, 6.0, 5.0]
    assert sums == []


def test_a_slice_that_python_makes_twice_is_one_index() -> None:
    def step(r: Any) -> None:
        part = r[1:3]
        part += 2.0
        r[1:3] = part

    text = str(make_jaxpr(step)(new_ref(np.zeros(4))))
    assert "+=" in text
    assert "Accum<a> ;" in text


@pytest.mark.parametrize(
    "use",
    [
        lambda v: v.item(),
        lambda v: float(np.asarray(v)),
        lambda v: (v + 0.0).item(),
        lambda v: jit(lambda x: x)(v).item(),
        lambda v: jit(lambda x: x * v)(1.0).item(),
        lambda v: pickle.loads(pickle.dumps(v)).item(),
        lambda v: jit(lambda xs: xs[3])([v] * 20).item(),
    ],
)
def test_a_sum_that_is_not_written_back_is_formed_when_it_is_used(
    use: Callable[[Any], float], sums: list[Any]
) -> None:
    r = new_ref(np.arange(4, dtype=np.float32))
    v = r[2]
    v += 1.5
    assert sums == []
    r[2] = 7.0
    assert use(v) == 3.5
    assert v.shape == ()
    assert v.dtype == np.float32
    assert len(sums) == 1
    assert r[...].tolist() == [0.0, 1.0, 7.0, 3.0]


def test_a_sum_of_a_value_that_may_change_is_formed_at_once(sums: list[Any]) -> None:
    r, x = new_ref(np.zeros(2)), np.ones(2)
    v = r[...]
    v += x
    x[:] = 5.0
    assert v.tolist() == [1.0, 1.0]
    assert len(sums) == 1


def test_numbers_that_do_not_fit_are_refused_where_they_are_added() -> None:
    r = new_ref(np.zeros(2, np.uint8))
    for number in (300, -1):
        with pytest.raises(OverflowError, match=f"integer {number} does not fit uint8"):
            r[0] += number
    r[0] += 100
    r[0] += 100
    assert r[0].item() == 200


def test_few_files_are_entered() -> None:
    r = new_ref(np.zeros(4, np.float32))
    entered: set[str] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        _, library, file = frame.f_code.co_filename.rpartition("/fiveloop/")
        if event == "call" and library:
            entered.add(file)

    for step in range(3):
        if step == 2:
            sys.setprofile(note)
        r[1] += 1.0
    sys.setprofile(None)
    assert r[1].item() == 3.0
    assert len(entered) <= 12, sorted(entered)

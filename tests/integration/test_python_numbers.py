"""A Python number keeps all its digits wherever it meets a 64-bit array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import jit
from fiveloop.loops import cond, for_loop, fori_loop, scan, switch, while_loop
from fiveloop.state import accumulate, addupdate, run_state, swap

ZEROS = np.zeros(3)
OTHER: Any = np.float64(0.2)
TENTH: Any = 0.1


def contents(change: Callable[[Any], Any], like: Any = ZEROS) -> Callable[[], Any]:
    """The first element of a Ref after a change."""
    run: Any = run_state(lambda ref: (change(ref), None)[1])
    return lambda: run(like)[0]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "set": contents(lambda ref: ref.__setitem__(0, 0.1)),
    "set all": contents(lambda ref: ref.__setitem__(..., 0.1)),
    "addupdate": contents(lambda ref: addupdate(ref, 0, 0.1)),
    "accumulate": contents(lambda ref: accumulate(ref, 0, 0.1, "max")),
    "swap": contents(lambda ref: swap(ref, 0, 0.1)),
    "at set": lambda: fnp.asarray(ZEROS).at[0].set(0.1)[0],
    "at add": lambda: fnp.asarray(ZEROS).at[0].add(0.1)[0],
    "pad": lambda: fnp.pad(ZEROS, 1, constant_values=0.1)[0],
    "append": lambda: fnp.append(ZEROS, 0.1)[3],
    "where": lambda: fnp.where(False, OTHER, 0.1),
    "cond": lambda: cond(True, lambda: 0.1, lambda: OTHER),
    "switch": lambda: switch(0, [lambda: 0.1, lambda: OTHER]),
    "scan init": lambda: scan(lambda c, x: (c + x, None), TENTH, ZEROS)[0],
    "scan carry": lambda: scan(lambda c, x: (TENTH, None), OTHER, ZEROS)[0],
    "fori_loop": lambda: fori_loop(0, 2, lambda i, c: c + ZEROS[0], 0.1),
    "for_loop": lambda: for_loop(1, lambda i, ref: ref.__setitem__(0, 0.1), ZEROS)[0],
    "while_loop": lambda: while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + ZEROS[0]), (0, 0.1)
    )[1],
}


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_digits_are_lost(name: str, jitted: bool) -> None:
    run = jit(PROGRAMS[name]) if jitted else PROGRAMS[name]
    got = run()
    assert got.dtype == np.float64
    assert float(got) == 0.1


def test_complex_numbers_too() -> None:
    got = contents(lambda ref: ref.__setitem__(0, 0.1j), np.zeros(1, np.complex128))()
    assert complex(got) == 0.1j


def test_a_number_of_another_kind_still_does_not_fit() -> None:
    with pytest.raises(TypeError, match="keep its types"):
        scan(lambda c, x: (TENTH, None), np.int32(1), ZEROS)


FLOATS = np.ones(3, np.float32)
WEAK: dict[str, Callable[[Any], Any]] = {
    "operator": lambda s: fnp.asarray(FLOATS) / s - s,
    "scan": lambda s: scan(lambda c, x: (c + x, None), s, FLOATS)[0],
    "fori_loop": lambda s: fori_loop(0, 2, lambda i, c: c * s + fnp.asarray(FLOATS)[i], s),
    "while_loop": lambda s: while_loop(lambda c: c < 4, lambda c: c + fnp.asarray(FLOATS)[0], s),
    "cond": lambda s: cond(True, lambda: s, lambda: fnp.asarray(FLOATS)[0]),
    "at": lambda s: fnp.asarray(FLOATS).at[0].add(s),
    "Ref": lambda s: run_state(lambda ref: ref.__setitem__(0, ref[1] * s))(FLOATS),
    "list": lambda s: fnp.array([fnp.asarray(FLOATS)[0], s]),
    "function": lambda s: fnp.maximum(s, fnp.where(fnp.asarray(FLOATS) > s, FLOATS, s)),
}


@pytest.mark.parametrize("name", WEAK)
def test_numpys_float64_widens_nothing(name: str) -> None:
    half = np.float64(0.5)
    ways: Any = (lambda f: f(half), lambda f: jit(f)(half), lambda f: jit(lambda: f(half))())
    for way in ways:
        assert way(WEAK[name]).dtype == np.float32


def test_numpys_float64_is_made_an_array_of_its_dtype() -> None:
    s = np.float64(0.1)
    made = (fnp.asarray(s), fnp.array([s, 0.1]), fnp.full((1,), s), jit(lambda: fnp.asarray(s))())
    for x in made:
        assert x.dtype == np.float64
        assert not x.weak_type
        assert float(x.ravel()[0]) == 0.1

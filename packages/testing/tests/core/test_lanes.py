"""The oracle's lanes: each is a program of its own, and they meet at collectives."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop.core import Jaxpr, ShapeDtype, axis_index, make_jaxpr, psum
from fiveloop.core.extend import NamedAxis
from fiveloop.testing.core.lanes import Lanes, LanesError, lanes, this_lane
from fiveloop.testing.core.oracle import run_jaxpr

I, J = NamedAxis("i", 3), NamedAxis("j", 2)


def total() -> Jaxpr:
    spec = ShapeDtype((), "float32")
    env = [("i", 3), ("j", 2)]
    return make_jaxpr(lambda x: (psum(x, "i"), axis_index("j")), axis_env=env)(spec)


def test_lanes_are_in_the_last_axes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    with lanes(I, J):
        summed, index = run_jaxpr(total(), [x])
    np.testing.assert_array_equal(summed, np.broadcast_to(x.sum(0), (3, 2)))
    np.testing.assert_array_equal(index, [[0, 1]] * 3)


def test_a_free_name_is_refused_where_there_are_no_lanes() -> None:
    with pytest.raises(LanesError, match=r"named axes i=3 only within `lanes\(\.\.\.\)` of them"):
        run_jaxpr(total(), [np.float32(1)])
    with lanes(J), pytest.raises(LanesError, match="named axes i=3 only within"):
        run_jaxpr(total(), [np.ones(2, np.float32)])


def test_a_lane_that_fails_is_what_is_raised() -> None:
    with lanes(I, J), pytest.raises(IndexError, match="too many indices"):
        run_jaxpr(total(), [np.float32(1)])


def test_lanes_that_do_not_meet_are_an_error() -> None:
    everyone = Lanes([J])

    def some(here: tuple[int, ...]) -> list[object]:
        return [everyone.exchange(here, "sum", 1.0)] if here == (0,) else [2.0]

    with pytest.raises(LanesError, match="a collective that others never reach"):
        everyone.run(some)

    other = Lanes([J])
    with pytest.raises(LanesError, match="different collectives at a time"):
        other.run(lambda here: [other.exchange(here, here, 1.0)])


def test_this_lane_has_its_coordinates() -> None:
    with pytest.raises(LanesError, match="named axes i=3"):
        this_lane([I])

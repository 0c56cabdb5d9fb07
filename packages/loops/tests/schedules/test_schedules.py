"""Counts of the schedules, against closed forms, an exhaustive search, and the same arithmetic compiled."""

from __future__ import annotations

from functools import cache
from math import comb, isqrt

import numpy as np
import pytest

import fiveloop.api as fl
import fiveloop.numpy as fnp
from fiveloop.loops.schedules.binomial import Binomial, advances, reach, reached, split
from fiveloop.loops.schedules.integers import Integer
from fiveloop.loops.schedules.online import Online
from fiveloop.loops.schedules.periodic import Periodic, TwoLevel, best_period, shortest_tape
from fiveloop.loops.schedules.simulation import advanced, evaluations

# Some lengths up to 10^5, evenly spread in their logarithm.
LENGTHS = sorted({round(3 * (10**5 / 3) ** (k / 60)) for k in range(61)})

# Advances for lengths and slots that no exhaustive search reaches.
LARGE = {
    (100, 2): 845,
    (100, 3): 490,
    (100, 4): 374,
    (100, 8): 245,
    (100, 32): 166,
    (128, 3): 694,
    (128, 5): 430,
    (128, 10): 306,
    (256, 2): 3608,
    (256, 4): 1330,
    (256, 6): 950,
    (256, 16): 597,
    (1000, 3): 12155,
    (1000, 5): 6284,
    (1000, 10): 3636,
    (1000, 32): 2405,
    (10000, 4): 157496,
    (10000, 8): 68560,
    (10000, 10): 57624,
    (10000, 32): 32860,
}


@cache
def fewest(length: int, slots: int) -> int:
    """The fewest advances, by trying every position for the next stored state."""
    if length <= 1:
        return 0
    if slots == 1:
        return length * (length - 1) // 2
    positions = range(1, length)
    return min(k + fewest(length - k, slots - 1) + fewest(k, slots) for k in positions)


def from_formula(length: int, slots: int) -> int:
    """The fewest advances, by the closed form of the literature."""
    repeats = 0
    while comb(slots + repeats, slots) < length:
        repeats += 1
    return repeats * length - comb(slots + repeats, slots + 1)


def stretches(schedule: Binomial, tapes: int) -> list[tuple[int, int]]:
    """The tapes from each state that the sweep has stored to the next, and the slots that are free for them."""
    stored = schedule.first()
    while 0 < schedule.next(stored) < tapes:
        stored = schedule.after_next(stored)
    stored, count = schedule.replayed(stored, tapes)
    starts = [int(schedule.position(stored, j)) for j in range(int(count))]
    pairs = zip(starts, [*starts[1:], tapes], strict=True)
    return [(b - a, schedule.slots - int(schedule.height(j))) for j, (a, b) in enumerate(pairs)]


def online_total(slots: int, length: int) -> int:
    """The evaluations of the online schedule: the sweep, the taped steps, and each stretch at its optimum."""
    return 2 * length + sum(from_formula(*each) for each in stretches(Online(slots), length))


def most_repeats(schedule: Binomial, length: int) -> int:
    """How often a step is advanced at most."""
    found = stretches(schedule, schedule.tapes(length))
    return max(int(reach(*each).repeats) for each in found)


def test_the_closed_form_is_the_optimum() -> None:
    for length in range(33):
        for slots in range(1, 9):
            assert advances(length, slots) == fewest(length, slots) == from_formula(length, slots)


def test_a_known_count_takes_the_fewest_advances_in_its_slots() -> None:
    for length in range(65):
        for slots in range(1, 17):
            found = evaluations(Binomial(slots), length)
            assert found.advanced == from_formula(length, slots), (length, slots)
            assert (found.swept, found.taped) == (length, length)
            assert found.slots <= slots


@pytest.mark.parametrize(("length", "slots"), LARGE)
def test_a_large_known_count_takes_the_fewest_advances(length: int, slots: int) -> None:
    assert evaluations(Binomial(slots), length).advanced == LARGE[length, slots]


def test_the_parts_of_a_split_stay_within_reach() -> None:
    for length in range(2, 200):
        for slots in (1, 2, 3, 5, 8):
            kept, left, right = split(length, slots, reach(length, slots))
            assert reached(slots, left.repeats) == left.steps >= kept >= 1
            assert reached(slots - 1, right.repeats) == right.steps >= length - kept
            assert kept >= reached(slots, left.repeats - 1) or left.repeats == 0
            assert length - kept >= reached(slots - 1, right.repeats - 1) or slots == 1


@pytest.mark.parametrize("slots", [*range(4, 18), 24, 33, 64, 128])
def test_an_unknown_count_takes_little_more_than_a_known_one(slots: int) -> None:
    known = {length: from_formula(length, slots) + length for length in LENGTHS}
    more = [online_total(slots, length) / known[length] for length in LENGTHS]
    assert max(more) <= (1.28 if slots < 10 else 1.22)
    assert sum(more) / len(more) <= 1.08


@pytest.mark.parametrize("slots", [2, 3, 4, 5, 8, 13, 32])
def test_the_online_schedule_finds_each_state_in_its_slot(slots: int) -> None:
    for length in [*range(80), 200, 777, 2049]:
        found = evaluations(Online(slots), length)
        assert found.total == online_total(slots, length)
        assert found.slots <= slots


def test_no_step_is_advanced_more_often_than_by_the_best_schedule() -> None:
    for slots in (2, 3, 6, 11):
        for length in LENGTHS[:30]:
            repeats = reach(length, slots).repeats
            advanced = online_total(slots, length) - 2 * length
            assert advanced <= repeats * length


def test_the_sweep_stores_half_as_many_states_each_time_the_length_doubles() -> None:
    schedule, stores = Online(16), []
    stored = schedule.first()
    for _ in range(16 + 3 * 8):
        stores.append(schedule.next(stored))
        stored = schedule.after_next(stored)
    assert stores[:15] == list(range(1, 16))
    assert stores[15:23] == list(range(16, 32, 2))
    assert stores[23:31] == list(range(32, 64, 4))
    assert stores[31:39] == list(range(64, 128, 8))


@pytest.mark.parametrize("schedule", [Binomial(7), Online(7), Online(4)])
def test_entries_of_the_stack_have_slots_of_their_own(schedule: Binomial) -> None:
    stored = schedule.first()
    for _ in range(50):
        places = {int(schedule.place(stored, j)) for j in range(schedule.slots)}
        assert places == set(range(schedule.slots))
        stored = schedule.after_next(stored)


def test_a_periodic_schedule_advances_no_step() -> None:
    for length in (1, 2, 10, 97, 100):
        tape = shortest_tape(length, isqrt(length))
        found = evaluations(Periodic(isqrt(length), tape), length)
        assert (found.advanced, found.taped) == (0, length)
        assert found.slots <= isqrt(length)


def test_tapes_count_as_steps_of_the_schedule() -> None:
    found = evaluations(Binomial(5, tape=10), 995)
    assert found.advanced == 10 * from_formula(100, 5)
    assert found.taped == 995


@pytest.mark.parametrize(
    "schedule",
    [
        Binomial(3, tape=4),
        Online(5),
        Online(2, tape=3),
        TwoLevel(3, slow=4, period=5),
        TwoLevel(2, tape=2, slow=3, period=3),
        TwoLevel(2, slow=2, period=7),
    ],
    ids=repr,
)
def test_a_schedule_knows_how_long_it_repeats_no_step_more_often(schedule: Binomial) -> None:
    for repeats in (1, 2, 3):
        longest = schedule.longest(repeats)
        assert max(most_repeats(schedule, n) for n in range(1, longest + 1)) <= repeats
        # What is stored on a grid may be enough for some more.
        assert isinstance(schedule, Online) or most_repeats(schedule, longest + 1) > repeats
    for length in (0, 1, 7, 40, 123):
        assert advanced(schedule, length) == evaluations(schedule, length).advanced


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_the_best_period_of_a_slow_store_takes_the_least_time_a_step(slots: int) -> None:
    for transfer in (0, 1, 2, 5, 10, 40, 300):
        times = {p: (from_formula(p, slots) + transfer) / p for p in range(1, 2000)}
        assert times[int(best_period(slots, transfer))] == min(times.values())


def test_two_stores_advance_within_the_periods_alone() -> None:
    schedule = TwoLevel(3, slow=10, period=12)
    for length in (0, 1, 12, 13, 100, 120):
        found = evaluations(schedule, length)
        whole, rest = divmod(length, 12)
        assert found.advanced == whole * from_formula(12, 3) + from_formula(rest, 3)
        assert found.slots <= 3


def test_a_full_slow_store_doubles_the_period() -> None:
    found = evaluations(TwoLevel(3, slow=4, period=5), 40)
    assert found.advanced == 4 * from_formula(10, 3)


def test_the_same_arithmetic_runs_compiled() -> None:
    @fl.jit
    def compiled(length: Integer, slots: Integer) -> list[Integer]:
        found = reach(length, slots, fl.while_loop)
        kept, left, right = split(length, slots, found)
        return [*found, kept, *left, *right, advances(length, slots, fl.while_loop)]

    for length, slots in ((2, 1), (100, 3), (10**5, 10), (7, 1000)):
        found = compiled(fnp.asarray(length, np.int64), fnp.asarray(slots, np.int64))
        kept, left, right = split(length, slots, reach(length, slots))
        expected = [*reach(length, slots), kept, *left, *right, advances(length, slots)]
        assert [int(x) for x in found] == expected


def test_the_online_schedule_runs_compiled() -> None:
    schedule = Online(9)

    @fl.jit
    def compiled(length: Integer) -> tuple[Integer, Integer, list[Integer]]:
        zero = 0 * length
        first = type(schedule.first())(zero + 1, zero + 1)
        swept = fl.while_loop(lambda s: schedule.next(s) < length, schedule.after_next, first)
        stored, count = schedule.replayed(swept, length, fl.while_loop)
        places = [schedule.place(stored, zero + j) for j in range(9)]
        return schedule.position(stored, count - 1), count, places

    for length in (1, 5, 9, 40, 1000, 99999):
        stored = schedule.first()
        while schedule.next(stored) < length:
            stored = schedule.after_next(stored)
        stored, count = schedule.replayed(stored, length)
        last, found, places = compiled(fnp.asarray(length, np.int64))
        assert (int(last), int(found)) == (schedule.position(stored, count - 1), count)
        assert [int(x) for x in places] == [schedule.place(stored, j) for j in range(9)]

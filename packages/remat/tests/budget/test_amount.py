"""What a budget may be written as."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop.remat.budget.amount import Choice, amount, shown, shown_time


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("2GiB", 2 * 2**30),
        ("24MB", 24_000_000),
        ("1.5 GB", 1_500_000_000),
        (" .5 kib ", 512),
        ("7 B", 7),
        ("1e3 B", 1000),
        (12345, 12345),
        (np.int32(77), 77),
        (0.25, 125),
        (np.float32(0.5), 150),
        ("75%", 175),
        (0.0, 100),
        (1.0, 200),
        ("0.5", 150),
        (" 1.0 ", 200),
        (".25", 125),
        ("12345", 12345),
        ("5", 5),
        ("1.e+3 B", 1000),
        ("50 %", 150),
        (np.str_("2gib"), 2 * 2**30),
    ],
)
def test_bytes(given: str | float, size: int) -> None:
    assert amount(given).bytes_of(100, 200) == size


@pytest.mark.parametrize("given", [True, np.True_, None, 1j, [3], np.array(0.5), b"3 B"])
def test_of_no_kind(given: object) -> None:
    with pytest.raises(TypeError, match="budget must be a number of bytes"):
        amount(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "must not be negative, got -1"),
        (-0.1, "must not be negative, got -0.1"),
        ("-3 B", "must not be negative, got '-3 B'"),
        ("-1", "must not be negative, got -1"),
        ("-5%", "must not be negative, got '-5%'"),
        (0, ": 0 may mean bytes or a fraction; write '0 B' for bytes, or 0.0 for a fraction"),
        ("1", ": 1 may mean bytes or a fraction; write '1 B' for bytes, or 1.0 for a fraction"),
        (1.5, "is a fraction from 0.0 to 1.0, got 1.5; for bytes write '1.5 B'"),
        ("1e9", "is a fraction from 0.0 to 1.0, got '1e9'; for bytes write '1000000000 B'"),
        (np.float32(2e3), "got np.float32(2000.0); for bytes write '2000 B'"),
        (float("inf"), "is a fraction from 0.0 to 1.0, got inf"),
        (float("nan"), "is a fraction from 0.0 to 1.0, got nan"),
        ("", "got ''; the units of text are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB and %"),
        ("3 PB", "got '3 PB'; the units of text are"),
        ("2G", "got '2G'; the units of text are"),
        ("5 iB", "got '5 iB'; the units of text are"),
        ("nan", "got 'nan'; the units of text are"),
        ("120%", ": a share of memory is from 0% to 100%, got '120%'"),
    ],
)
def test_of_no_meaning(given: object, message: str) -> None:
    with pytest.raises(ValueError, match="checkpoint: budget") as raised:
        amount(given)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (-0.0, "0%"),
        ("0.5%", "0.5%"),
        (1 / 3, "33.33%"),
        ("24MB", "24 MB"),
        ("128 MB", "128 MB"),
        ("1.5GB", "1.5 GB"),
        ("650 kB", "650 kB"),
        ("2GiB", "2 GiB"),
        ("50 KiB", "50 KiB"),
        (123_456_789, "123456789 B"),
        (7, "7 B"),
    ],
)
def test_an_amount_prints_what_was_given(given: str | float, text: str) -> None:
    assert str(amount(given)) == text


def test_bytes_are_shown_in_the_largest_unit() -> None:
    assert [shown(n) for n in (12, 2048, 3 * 2**20, 5 * 2**30)] == [
        "12 B",
        "2 KiB",
        "3 MiB",
        "5 GiB",
    ]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (10_400, "10.4 s"),
        (12.34, "12.3 ms"),
        (0.0819, "81.9 µs"),
        (8.16e-5, "81.6 ns"),
        (0, "0 ns"),
    ],
)
def test_times_are_shown_in_the_largest_unit(milliseconds: float, text: str) -> None:
    assert shown_time(milliseconds) == text
    plan = Choice(amount("1 GB"), 2048, milliseconds, 1024, 2048)
    assert str(plan).endswith(f"; {text} estimated")


def test_a_plan_of_more_bytes_than_saving_everything_is_within_the_range_that_is_told() -> None:
    """It keeps less, and so is estimated to be faster."""
    plan = Choice(amount("1 GB"), 2048, 1.0, 1024, 1536)
    assert "of plans from 1 KiB to 2 KiB, with the margin" in str(plan)

"""What a budget may be written as."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop.remat.budget.amount import amount, shown


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
    ],
)
def test_bytes(given: str | float, size: int) -> None:
    assert amount(given).bytes_of(100, 200) == size


@pytest.mark.parametrize("given", [True, None, 1j, [3], b"3 B"])
def test_of_no_kind(given: object) -> None:
    with pytest.raises(TypeError, match="budget must be a number of bytes"):
        amount(given)


@pytest.mark.parametrize(
    "given", [-1, 0, 1, 1.5, -0.1, float("inf"), "5", "", "120%", "3 PB", "-3 B"]
)
def test_of_no_meaning(given: object) -> None:
    with pytest.raises(ValueError, match="budget"):
        amount(given)


@pytest.mark.parametrize(
    ("given", "text"), [(-0.0, "0%"), ("0.5%", "0.5%"), (1 / 3, "33.33%"), ("24MB", "22.89 MiB")]
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

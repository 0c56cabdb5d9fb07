"""Random loops stay in place, whatever they do to their arrays; the fuzz session goes through more of them."""

from __future__ import annotations

import pytest
from tests.integration.random_gate import assert_in_place


@pytest.mark.parametrize("seed", range(24))
def test_no_step_of_a_random_loop_copies_an_array(seed: int) -> None:
    assert_in_place(seed)


def test_equal_numbers_written_where_run_time_tells_wait_like_others() -> None:
    """A choice between 0.5 and 0.5 is a constant, which let XLA turn an order into selects."""
    assert_in_place(144000056)

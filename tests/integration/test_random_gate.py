"""Random loops stay in place, whatever they do to their arrays; the fuzz session goes through more of them."""

from __future__ import annotations

import pytest
from tests.integration.random_gate import assert_in_place


@pytest.mark.parametrize("seed", range(24))
def test_no_step_of_a_random_loop_copies_an_array(seed: int) -> None:
    assert_in_place(seed)

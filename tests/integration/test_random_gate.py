"""Random loops stay in place, whatever they do to their arrays; the fuzz session goes through more of them."""

from __future__ import annotations

import pytest
from tests.integration import random_layers
from tests.integration.random_gate import PLACES, Access, Loop, assert_in_place, draw


@pytest.mark.parametrize("seed", range(24))
def test_no_step_of_a_random_loop_copies_an_array(seed: int) -> None:
    assert_in_place(draw(seed), seed)


@pytest.mark.parametrize("seed", [*range(4), 8, 11, 12, 37])
def test_no_step_of_a_gradient_of_layers_copies_an_array(seed: int) -> None:
    random_layers.assert_in_place(random_layers.draw(seed), seed)


AT = {name: k for k, (name, _) in enumerate(PLACES)}


def test_equal_numbers_written_where_run_time_tells_wait_like_others() -> None:
    """A choice between 0.5 and 0.5 is a constant, which let XLA turn an order into selects."""
    accesses = [("write", "k[k[i]]"), ("add", "7 * i % SIZE"), ("write", "i"), ("write", "i + 1")]
    steps = tuple(Access(kind, 0, AT[place]) for kind, place in accesses)
    assert_in_place(Loop(1, steps, nested=False, batched=False))

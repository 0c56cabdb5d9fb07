"""Held-out loss: each character counts once, however the text falls into batches."""

from typing import Any

import numpy as np
import pytest
from char_transformer.data import Ids
from char_transformer.evaluate import some_of_it, whole_text


def target_as_loss(params: float, windows: Ids) -> Any:
    """Pretend that the loss of a target is its id."""
    return params * windows[:, 1:]


@pytest.mark.parametrize("length", [20, 65, 129, 200])
@pytest.mark.parametrize("batch", [1, 4, 7])
def test_the_loss_of_the_whole_text_is_the_mean_over_its_targets(length: int, batch: int) -> None:
    ids = np.arange(length, dtype=np.int32)
    held_out = whole_text(ids, context=16, batch=batch)
    assert held_out.loss(target_as_loss, 2.0) == pytest.approx(2.0 * ids[1:].mean())
    assert held_out.windows.shape[1:] == (batch, 17)


def test_some_of_the_text_is_few_windows_from_its_start_to_its_end() -> None:
    ids = np.arange(10_000, dtype=np.int32)
    held_out = some_of_it(ids, context=16, batch=4, batches=3)
    assert held_out.windows.shape == (3, 4, 17)
    assert held_out.windows[0, 0, 0] == 0
    assert held_out.windows[-1, -1, -1] == 9_999


def test_some_of_a_short_text_is_all_of_it() -> None:
    ids = np.arange(40, dtype=np.int32)
    held_out = some_of_it(ids, context=16, batch=4, batches=3)
    assert held_out.loss(target_as_loss, 1.0) == pytest.approx(ids[1:].mean())

"""The held-out loss of a model: each character counts once, and is judged by a long past."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .data import Ids, held_out_windows

Nats = Callable[[Any, Ids], Any]


@dataclass(frozen=True)
class HeldOut:
    """Windows of held-out text in batches of one size, and what each target counts."""

    windows: npt.NDArray[np.int32]  # [batches, batch, context + 1]
    weights: npt.NDArray[np.float32]  # [batches, batch, context]

    def loss(self, nats: Nats, params: Any) -> float:
        """Give the mean loss, from a function that gives the loss of each target of a batch."""
        total = 0.0
        for windows, weights in zip(self.windows, self.weights, strict=True):
            total += float((np.asarray(nats(params, windows), np.float64) * weights).sum())
        return total / float(self.weights.sum())


def whole_text(ids: Ids, *, context: int, batch: int) -> HeldOut:
    """Give all the text, each target with at least half a context of past but for the very first."""
    return batched(*held_out_windows(ids, context=context, stride=max(context // 2, 1)), batch)


def some_of_it(ids: Ids, *, context: int, batch: int, batches: int) -> HeldOut:
    """Give a few windows from all over the text, to watch the loss fall at little cost."""
    windows, weights = held_out_windows(ids, context=context, stride=context)
    chosen = np.linspace(0, len(windows) - 1, min(batch * batches, len(windows))).astype(int)
    return batched(windows[chosen], weights[chosen], batch)


def batched(windows: Ids, weights: npt.NDArray[np.float32], batch: int) -> HeldOut:
    """Cut windows into batches; the last is filled up with windows that count nothing."""
    missing = -len(windows) % batch
    windows = np.concatenate([windows, np.repeat(windows[:1], missing, axis=0)])
    weights = np.concatenate([weights, np.zeros((missing, *weights.shape[1:]), np.float32)])
    return HeldOut(
        windows.reshape(-1, batch, *windows.shape[1:]),
        weights.reshape(-1, batch, *weights.shape[1:]),
    )

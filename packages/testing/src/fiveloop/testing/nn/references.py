"""What nn's primitives compute, in plain NumPy, for the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.testing.core.oracle import define_reference


def _softmax(values: Sequence[Any], p: Any) -> list[Any]:
    (x,) = values
    powers = np.exp(x - np.max(x, axis=p.axes, keepdims=True))
    return [powers / np.sum(powers, axis=p.axes, keepdims=True)]


def _log_softmax(values: Sequence[Any], p: Any) -> list[Any]:
    return [np.log(_softmax(values, p)[0])]


define_reference("relu", lambda values, p: [np.maximum(values[0], 0)])
define_reference("softmax", _softmax)
define_reference("log_softmax", _log_softmax)

"""Format strings for arrays, in prints and in the messages of checks."""

from __future__ import annotations

from string import Formatter
from typing import Any

import numpy as np


class ArrayFormatter(Formatter):
    """`str.format`, with a format specification applied to each element of an array."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if isinstance(value, np.ndarray) and format_spec:
            if value.ndim == 0:
                return format(value[()], format_spec)
            each = {"all": lambda x: format(x, format_spec)}
            return np.array2string(value, formatter=each)  # type: ignore[arg-type]  # "all" is one of its keys
        return super().format_field(value, format_spec)

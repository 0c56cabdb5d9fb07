"""Format strings for arrays, in prints and in checks: checked when traced, filled in when the program runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

import numpy as np

from fiveloop.core.dataclass import dataclass


class ArrayFormatter(Formatter):
    """`str.format`, with a format specification applied to each element of an array."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if isinstance(value, np.ndarray) and format_spec:
            if value.ndim == 0:
                return format(value[()], format_spec)
            each = {"all": lambda x: format(x, format_spec)}
            return np.array2string(value, formatter=each)  # type: ignore[arg-type]  # "all" is one of its keys
        return super().format_field(value, format_spec)


class _Complete(ArrayFormatter):
    """The same, with nothing left over."""

    def check_unused_args(
        self, used_args: set[int | str], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        given = [*range(len(args)), *kwargs]
        left = [str(name) for name in given if name not in used_args]
        if left:
            raise ValueError(f"no field takes the argument {', '.join(left)}")


_FORMATTER = _Complete()


@dataclass(frozen=True)
class Printer:
    """Prints its arguments by a format string."""

    text: str

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Print a line."""
        print(_FORMATTER.vformat(self.text, args, kwargs))

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise ValueError unless the format string fits arguments like these."""
        try:
            _FORMATTER.vformat(self.text, args, kwargs)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError(
                f"debug_print: expected a format string that fits the arguments, got {self.text!r}: {_reason(error)}; "
                f"write a field `{{}}` or `{{name}}` for each argument"
            ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"nothing is given for the field {error.args[0]!r}"
    if isinstance(error, IndexError):
        return f"too few arguments are given ({error})"
    return str(error)

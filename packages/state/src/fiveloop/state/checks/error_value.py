"""Errors as values: what `checkify` returns beside the result of a function."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import Value, pytree, trace
from fiveloop.state.checks.record import error_in
from fiveloop.state.checks.site import CheckError


class ErrorValue:
    """The first check that has failed in a function, or none; under `vmap` one of each lane.

    It is a container of one array, and so can be returned from functions under `jit` and `vmap`. It is true if
    something has failed; `error[k]` is the error of lane `k`.
    """

    __slots__ = ("record",)

    def __init__(self, record: Value) -> None:
        self.record = record

    def first(self) -> CheckError | None:
        """The exception of the first lane in which something has failed, or None."""
        records = np.asarray(self.record)
        failed = np.argwhere(records[..., 0])
        if not len(failed):
            return None
        lane = tuple(failed[0])
        return error_in(records[lane], lane)

    def get(self) -> str | None:
        """The message of the failed check, or None."""
        error = self.first()
        return None if error is None else str(error)

    def throw(self) -> None:
        """Raise CheckError if something has failed."""
        error = self.first()
        if error is not None:
            raise error

    def __bool__(self) -> bool:
        return self.first() is not None

    def __getitem__(self, lane: Any) -> ErrorValue:
        return ErrorValue(self.record[lane])

    def __repr__(self) -> str:
        return (
            f"ErrorValue({self.record if isinstance(self.record, trace.Tracer) else self.get()!r})"
        )


pytree.register_node(
    ErrorValue, lambda error: ((error.record,), None), lambda _, xs: ErrorValue(*xs), ["record"]
)

"""Lanes for the oracle: a jaxpr with named axes run once a lane, in threads that meet at each collective.

So the oracle gives a free axis name its plain meaning, many programs that talk to each other, and shares nothing
with batching. Within `with lanes(axis, ...)` every operand and result of a run has the lanes in its last axes, one
an axis. Without it a jaxpr with free axis names is refused. Lanes that do not meet at the same collectives are an
error: what a masked loop makes of that is not for the oracle to say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np

from fiveloop.core.ir.axes import NamedAxis

Coordinates = tuple[int, ...]
RunLane = Callable[[Coordinates], list[Any]]


class LanesError(AssertionError):
    """Lanes that do not meet, or a collective where there are none."""


class Lanes:
    """The lanes of some axes, while they run."""

    def __init__(self, axes: Sequence[NamedAxis]) -> None:
        self.axes = tuple(axes)
        self.sizes = tuple(axis.size for axis in axes)
        self._count = int(np.prod(self.sizes, dtype=int))
        self._meeting = threading.Condition()
        self._offers: dict[Coordinates, tuple[Any, Any]] = {}
        self._taken: dict[Coordinates, tuple[Any, Any]] = {}
        self._meetings = 0
        self._gone = 0

    def coordinates(self) -> list[Coordinates]:
        """Every lane, in row-major order."""
        return list(product(*map(range, self.sizes)))

    def run(self, run_lane: RunLane) -> list[Any]:
        """The results of all lanes, stacked along last axes."""
        found: dict[Coordinates, list[Any]] = {}
        errors: list[BaseException] = []

        def work(here: Coordinates) -> None:
            _local.lane = (self, here)
            try:
                with np.errstate(all="ignore"):
                    found[here] = run_lane(here)
            except BaseException as error:
                errors.append(error)
            with self._meeting:
                self._gone += 1
                self._meeting.notify_all()

        threads = [threading.Thread(target=work, args=(here,)) for here in self.coordinates()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            first = [e for e in errors if not isinstance(e, LanesError)]
            raise (first or errors)[0]
        results = zip(*[found[here] for here in self.coordinates()], strict=True)
        return [self._stacked(result) for result in results]

    def _stacked(self, each: Sequence[Any]) -> np.ndarray[Any, Any]:
        together = np.stack([np.asarray(x) for x in each], axis=-1)
        return together.reshape((*together.shape[:-1], *self.sizes))

    def exchange(self, here: Coordinates, what: object, value: Any) -> dict[Coordinates, Any]:
        """What every lane has, once all are here; `what` must be equal for all."""
        with self._meeting:
            number = self._meetings
            self._offers[here] = (what, value)
            if len(self._offers) == self._count:
                self._taken, self._offers = self._offers, {}
                self._meetings += 1
                self._meeting.notify_all()
            self._meeting.wait_for(lambda: self._meetings > number or self._gone)
            if self._meetings == number:
                raise LanesError("some lanes come to a collective that others never reach")
            everything = self._taken
        if any(other != what for other, _ in everything.values()):
            raise LanesError("the lanes come to different collectives at a time")
        return {there: given for there, (_, given) in everything.items()}


class _Local(threading.local):
    lane: tuple[Lanes, Coordinates] | None = None
    axes: tuple[NamedAxis, ...] = ()


_local = _Local()


@contextmanager
def lanes(*axes: NamedAxis) -> Iterator[None]:
    """Within the block the oracle runs jaxprs in all lanes of these axes."""
    before, _local.axes = _local.axes, axes
    try:
        yield
    finally:
        _local.axes = before


def lane_axes() -> tuple[NamedAxis, ...]:
    """The axes of the lanes in which the oracle runs jaxprs."""
    return _local.axes


def lane_sizes() -> tuple[int, ...]:
    """The sizes of the lanes' axes: the last ones of each operand and result of a run."""
    return tuple(axis.size for axis in _local.axes)


def lanes_to_run() -> Lanes | None:
    """The lanes that a run is to be made in, if there are any and this is none of them."""
    return Lanes(_local.axes) if _local.axes and _local.lane is None else None


def this_lane(axes: Sequence[NamedAxis]) -> tuple[Lanes, Coordinates]:
    """The lane that is running, which must have these axes."""
    lane = _local.lane
    missing = [str(a) for a in axes if lane is None or a not in lane[0].axes]
    if lane is None or missing:
        raise LanesError(
            f"the oracle runs a jaxpr with the named axes {', '.join(missing)} only within `lanes(...)` of them"
        )
    return lane

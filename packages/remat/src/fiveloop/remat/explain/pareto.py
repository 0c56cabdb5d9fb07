"""`pareto`: the memory of a gradient against its estimated time, for policies and a range of budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fiveloop.core import trace, transforms
from fiveloop.core.api import flatten
from fiveloop.core.dataclass import asdict, dataclass, replace
from fiveloop.remat import policies as known
from fiveloop.remat import residuals
from fiveloop.remat.budget import amount
from fiveloop.remat.budget.plans import rounded
from fiveloop.remat.buffers import backward_begins
from fiveloop.remat.explain import picture
from fiveloop.remat.explain.table import WIDTH, limit, shown_count, table
from fiveloop.remat.name import labels_given
from fiveloop.remat.primitive import CheckpointParams, Origin, in_checkpoint
from fiveloop.remat.timeline import timeline

BUDGETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
"""The fractions from the least that can be reached to saving everything, unless others are given."""

POLICIES: tuple[transforms.Policy, ...] = (
    known.everything_saveable,
    known.dots_saveable,
    known.dots_with_no_batch_dims_saveable,
    known.nothing_saveable,
)
"""The policies, unless others are given."""


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A way to checkpoint: the peak of temporary bytes, the estimated time, the bytes saved, the operations recomputed.

    The peak excludes the margin that a budget leaves for memory that the compiler may add. `milliseconds` are an
    estimate from the operations and bytes of each equation, to one percent, to compare ways with each other.
    """

    name: str
    budget: bool
    peak: int
    milliseconds: float
    saved: int
    flops_again: int


@dataclass(frozen=True, repr=False)
class Pareto(picture.Report):
    """Ways to checkpoint a function, sorted by memory, least first. It prints as a table.

    `unattainable` lists the budgets that are less than any plan needs; `least` is the least memory of any plan in
    bytes, if there are any.
    """

    name: str
    points: tuple[ParetoPoint, ...]
    unattainable: tuple[str, ...] = ()
    least: int | None = None

    @property
    def front(self) -> tuple[ParetoPoint, ...]:
        """The Pareto front: the ways that no other way beats in both memory and time."""
        found: list[ParetoPoint] = []
        for p in sorted(self.points, key=lambda p: (p.peak, p.milliseconds)):
            if not found or p.milliseconds < found[-1].milliseconds:
                found.append(p)
        return tuple(found)

    @trace.boundary
    def table(self, width: int | None = WIDTH) -> str:
        """The ways as a table.

        Cells are cut where a row has more than `width` characters; with `width=None` the text is whole.
        """
        rows = [("peak", "time", "", "way", "saved", "done again")]
        front = self.front
        for p in self.points:
            mark = "*" if p in front else ""
            again = f"{shown_count(p.flops_again)} operations" if p.flops_again else ""
            row = (
                amount.shown(p.peak),
                amount.shown_time(p.milliseconds),
                mark,
                p.name,
                amount.shown(p.saved),
                again,
            )
            rows.append(row)
        missed = [
            f"{way}: {self.name} needs {amount.shown(self.least or 0)} at least"
            for way in self.unattainable
        ]
        return "\n".join([table(rows, limit("width", width)), *missed])

    def __str__(self) -> str:
        return self.table()

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "points": [asdict(p) for p in self.points],
            "unattainable": list(self.unattainable),
            "least": self.least,
        }

    def drawn(self) -> picture.Picture:
        """Memory against time."""
        most = max((p.peak for p in self.points), default=0)
        longest = max((p.milliseconds for p in self.points), default=0.0)
        chart = picture.Picture(
            f"Memory and estimated time of {self.name}",
            picture.axis("peak of temporary memory", most, amount.BYTES),
            picture.axis("estimated time", longest, amount.TIMES),
        )
        chart.legend([("budgets", picture.COLOURS[0]), ("policies", picture.COLOURS[1])])
        notes = [p.name.removeprefix("budget=").strip("'") for p in self.points]
        chart.points(
            [
                (p.peak, p.milliseconds, note, picture.COLOURS[not p.budget])
                for p, note in zip(self.points, notes, strict=True)
            ]
        )
        return chart


@trace.boundary
def pareto(
    f: Callable[..., Any],
    *args: Any,
    budgets: Iterable[str | float] = BUDGETS,
    policies: Iterable[transforms.Policy] = POLICIES,
    **kwargs: Any,
) -> Pareto:
    """The memory and the estimated time of the gradient of `checkpoint(f)` in all its floating arguments, for each
    budget and each policy, and of `f` without a checkpoint.

    Nothing is compiled. Budgets with the same plan are listed once. A star in the table marks the ways that no other
    way beats in both memory and time. For a budget that is less than any plan needs, a line states the least memory of
    any plan; ValueError if all budgets are.

    >>> import fiveloop.numpy as fnp
    >>> def f(x):
    ...     return fnp.sin(fnp.sin(x @ x) @ x).sum()
    >>> found = pareto(f, fnp.ones((64, 64)), budgets=[0.0, 1.0])
    >>> [p.name for p in found.points if p.name == "nothing_saveable"]
    ['nothing_saveable']
    """
    if isinstance(budgets, str) or not isinstance(budgets, Iterable):
        raise TypeError(
            f"pareto: budgets must be a sequence, got {budgets!r}; one budget is `budgets=[{budgets!r}]`"
        )
    judges = _judges(policies)
    jaxpr, names = residuals.staged("pareto", f, *args, **kwargs)
    name = flatten.function_name(f)
    planned: list[tuple[int, ParetoPoint]] = []
    missed: dict[str, int] = {}
    for given in budgets:
        budget = amount.amount(given, "pareto: a budget")
        params = CheckpointParams(jaxpr, known.undecided, Origin(name), budget=budget)
        way = f"budget={given.item() if isinstance(given, np.generic) else given!r}"
        try:
            planned.append(_within(way, params, names))
        except amount.UnattainableError as error:
            missed[way] = error.least
    least = max(missed.values(), default=None)
    if least is not None and not planned:
        raise ValueError(
            f"pareto: {name} needs {amount.shown_exactly(least)} at least, more than every one of the budgets "
            f"allows: {', '.join(missed)}; give more, or fractions from 0.0 to 1.0"
        )
    points = _of_plans(planned)
    for way, policy in judges:
        unlabelled = known.names_in(policy) - labels_given(jaxpr)
        params = CheckpointParams(jaxpr, policy, Origin(name), unlabelled=unlabelled)
        whole = in_checkpoint(params)
        points.append(_point(way, residuals.split_in_halves(whole, names)))
    points.append(_point("no checkpoint", residuals.split_in_halves(jaxpr, names)))
    points.sort(key=lambda p: (p.peak, p.milliseconds))
    return Pareto(name, tuple(points), tuple(missed), least)


def _judges(policies: Iterable[transforms.Policy]) -> list[tuple[str, transforms.Policy]]:
    """Policies, each with what a program writes for it."""
    if isinstance(policies, str | Mapping) or not isinstance(policies, Iterable):
        raise TypeError(
            f"pareto: policies must be a sequence of policies, got {policies!r}; one policy is "
            "`policies=[dots_saveable]`"
        )
    judges = {p: transforms.as_policy("pareto: a policy", p) for p in policies}
    return [(known.as_written(p), judge) for p, judge in judges.items()]


def _within(name: str, params: CheckpointParams, names: Sequence[str]) -> tuple[int, ParetoPoint]:
    """What a budget comes to, and the bytes that its plan needs; 0 if there is nothing to differentiate."""
    halves = residuals.split_in_halves(in_checkpoint(params), names)
    # The first is that of the whole, budgets within follow.
    choices = residuals.choices_in(halves.known)
    size = choices[0].bytes if choices else 0
    return size, replace(_point(name, halves), budget=True)


def _of_plans(found: Iterable[tuple[int, ParetoPoint]]) -> list[ParetoPoint]:
    """The points of plans, equal ones once. None takes more time than one of fewer bytes.

    Plans are chosen by the time of their stages, put together; the time of the whole may differ by a percent.
    """
    points: dict[tuple[int, float], ParetoPoint] = {}
    fastest = math.inf
    for _, point in sorted(found, key=lambda each: each[0]):
        fastest = min(fastest, point.milliseconds)
        points.setdefault((point.peak, fastest), replace(point, milliseconds=fastest))
    return [*points.values()]


def _point(name: str, halves: residuals.Halves) -> ParetoPoint:
    """What a derivative needs."""
    both, saved = halves.both_passes(), halves.residuals().bytes
    num_cts = len(both.invars) - len(halves.known.invars)
    line = timeline(both)
    # What is light is computed where it is used, in both passes.
    kept = min(halves.made, line.kept(backward_begins(line, both, num_cts)))
    to_keep = transforms.recomputation_time(0, kept) + transforms.mapping_time(line.peak)
    time = rounded(halves.time + to_keep) / 1e6
    return ParetoPoint(name, False, line.peak, time, saved, halves.flops_again)

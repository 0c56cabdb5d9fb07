"""Reading limits off the measured rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.duel import Row
from benchmarks.model import (
    AtMost,
    Case,
    GeomeanLimit,
    GrowthLimit,
    Limit,
    NoCopies,
    NoMoreAgain,
    Plan,
    RatioLimit,
)
from benchmarks.stats import Ratio, growth_exponent, meets


@dataclass(frozen=True)
class Growth:
    """The exponents of one contender over the sizes it ran."""

    case: str
    contender: str
    sizes: tuple[int, ...]
    run: float | None
    temp_bytes: float | None
    staging: float | None


@dataclass(frozen=True)
class Finding:
    """One limit, what was measured, and whether it is kept; `kept` is None where nothing could be measured."""

    case: str
    what: str
    row: str
    measured: str
    at_most: str
    kept: bool | None


def growths(case: Case, rows: Sequence[Row]) -> list[Growth]:
    """The growth of every contender that ran at two sizes or more."""
    found = []
    for contender in case.contenders:
        ran = [row for row in rows if row.contender == contender.name and row.run is not None]
        steps = [row.steps for row in ran]
        if len(set(steps)) < 2:
            continue
        # Noise only adds to a time, so the least is the better witness of how it grows.
        run = growth_exponent(steps, [row.run.least for row in ran if row.run is not None])
        space = growth_exponent(steps, [row.metric("temp_bytes") or 0.0 for row in ran])
        staging = growth_exponent(steps, [row.metric("staging") or 0.0 for row in ran])
        sizes = tuple(row.size for row in ran)
        found.append(Growth(case.name, contender.name, sizes, run, space, staging))
    return found


def findings(case: Case, rows: Sequence[Row]) -> list[Finding]:
    """Every limit of a case, judged."""
    return [judge(case, limit, rows) for limit in case.limits]


def judge(case: Case, limit: Limit, rows: Sequence[Row]) -> Finding:
    """One limit, judged."""
    match limit:
        case RatioLimit():
            return ratio_finding(case, limit, rows)
        case AtMost():
            return own_finding(case, limit, rows)
        case GrowthLimit():
            return growth_finding(case, limit, rows)
        case NoCopies():
            return copies_finding(case, limit, rows)
        case NoMoreAgain():
            return again_finding(case, limit, rows)


def ratio_finding(case: Case, limit: RatioLimit, rows: Sequence[Row]) -> Finding:
    """Ours over the peer's, at the size that the limit names or at the worst of all that both ran."""
    ours, theirs = (
        {row.size: row for row in rows if row.contender == name and limit.size in (None, row.size)}
        for name in (case.ours.name, limit.peer)
    )
    ratios = {
        size: measured_ratio(limit.metric, ours[size], theirs[size])
        for size in ours
        if size in theirs
    }
    known = {size: ratio for size, ratio in ratios.items() if ratio is not None}
    what = f"{limit.metric} / {limit.peer}"
    if not known:
        return Finding(case.name, what, limit.row, "not measured", f"{limit.at_most:g}", None)
    worst = max(known, key=lambda size: known[size].median)
    kept = all(meets(ratio, limit.at_most) for ratio in known.values())
    text = f"{known[worst].median:.3g} [{known[worst].low:.3g}, {known[worst].high:.3g}]"
    which = "n" if limit.size is not None or len(known) == 1 else f"worst of {len(known)} sizes: n"
    return Finding(
        case.name, f"{what}, {which} = {worst}", limit.row, text, f"{limit.at_most:g}", kept
    )


def measured_ratio(metric: str, ours: Row, theirs: Row) -> Ratio | None:
    """The ratio of one metric; times have an interval, bytes are exact."""
    if metric == "run":
        return theirs.ratio
    if metric == "trace_lower":
        return theirs.lower_ratio
    if metric == "staging":
        return theirs.staging_ratio
    a, b = ours.metric(metric), theirs.metric(metric)
    return None if a is None or not b else Ratio(a / b, a / b, a / b)


def own_finding(case: Case, limit: AtMost, rows: Sequence[Row]) -> Finding:
    """Our own metric, or that of the contender named, at the largest size that ran."""
    name = limit.contender or case.ours.name
    mine = [row for row in rows if row.contender == name]
    values = {row.size: row.metric(limit.metric) for row in mine}
    known = {size: value for size, value in values.items() if value is not None}
    what = limit.metric if limit.contender is None else f"{limit.metric} of {limit.contender}"
    if not known:
        return Finding(case.name, what, limit.row, "not measured", f"{limit.at_most:g}", None)
    size = max(known)
    what, kept = f"{what}, n = {size}", known[size] <= limit.at_most
    return Finding(case.name, what, limit.row, f"{known[size]:.3g}", f"{limit.at_most:g}", kept)


def growth_finding(case: Case, limit: GrowthLimit, rows: Sequence[Row]) -> Finding:
    """Our exponent for one metric."""
    name = case.ours.name
    mine = next((g for g in growths(case, rows) if g.contender == name), None)
    value: float | None = None if mine is None else getattr(mine, limit.metric)
    what = f"growth exponent of {limit.metric}"
    if value is None:
        return Finding(case.name, what, limit.row, "not measured", f"{limit.at_most:g}", None)
    return Finding(
        case.name, what, limit.row, f"{value:.3f}", f"{limit.at_most:g}", value <= limit.at_most
    )


def copies_finding(case: Case, limit: NoCopies, rows: Sequence[Row]) -> Finding:
    """Whole-array instructions inside our while bodies, over all sizes."""
    counts = [r.copies for r in rows if r.contender == case.ours.name and r.copies is not None]
    what = "whole-array instructions in while bodies"
    if not counts:
        return Finding(case.name, what, limit.row, "not measured", "0", None)
    return Finding(case.name, what, limit.row, str(max(counts)), "0", max(counts) == 0)


def again_finding(case: Case, limit: NoMoreAgain, rows: Sequence[Row]) -> Finding:
    """For each plan of the peer, the operations of ours at the same saved bytes, and whether they are no more."""
    ours, theirs = (
        [plan for row in rows if row.contender == name for plan in row.saving.plans]
        for name in (case.ours.name, limit.peer)
    )
    what = f"operations again / {limit.peer}'s, at its saved bytes"
    if not ours or not theirs:
        return Finding(case.name, what, limit.row, "not measured", "1", None)
    least = [again_at(plan.saved_bytes, ours) for plan in theirs]
    found = [
        "none fits" if mine is None else f"{mine:.3g} / {plan.flops_again:.3g}"
        for mine, plan in zip(least, theirs, strict=True)
    ]
    kept = all(
        mine is not None and mine <= plan.flops_again
        for mine, plan in zip(least, theirs, strict=True)
    )
    return Finding(case.name, what, limit.row, ", ".join(found), "1", kept)


def again_at(saved: int, plans: Sequence[Plan]) -> float | None:
    """The operations again of the best plans at so many bytes, on the line between two of them; None below all."""
    front: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.saved_bytes, plan.flops_again)):
        if not front or plan.flops_again < front[-1].flops_again:
            front.append(plan)
    if saved < front[0].saved_bytes:
        return None
    return float(np.interp(saved, [p.saved_bytes for p in front], [p.flops_again for p in front]))


def geomean_finding(limit: GeomeanLimit, rows: Sequence[Row], ours: str = "fiveloop") -> Finding:
    """The mean over those of the limit's cases that ran."""
    found = []
    for name in limit.cases:
        of_case = [row for row in rows if row.case == name]
        by_name = {(row.contender, row.size): row for row in of_case}
        sizes = sorted({row.size for row in of_case}, reverse=True)
        ratios = (
            measured_ratio(limit.metric, by_name[ours, n], by_name[limit.peer, n])
            for n in sizes
            if (ours, n) in by_name and (limit.peer, n) in by_name
        )
        largest = next((r for r in ratios if r is not None and r.median > 0), None)
        found += [] if largest is None else [largest.median]
    what = f"{limit.metric} / {limit.peer}, geometric mean of {len(found)} cases"
    if not found:
        return Finding("all", what, limit.row, "not measured", f"{limit.at_most:g}", None)
    mean = math.exp(sum(map(math.log, found)) / len(found))
    kept = mean <= limit.at_most
    return Finding("all", what, limit.row, f"{mean:.3g}", f"{limit.at_most:g}", kept)

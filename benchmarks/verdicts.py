"""Reading limits off the measured rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.duel import Row
from benchmarks.model import Case, GrowthLimit, Limit, NoCopies, RatioLimit
from benchmarks.stats import Ratio, growth_exponent, meets


@dataclass(frozen=True)
class Growth:
    """The exponents of one contender over the sizes it ran."""

    case: str
    contender: str
    sizes: tuple[int, ...]
    run: float | None
    temp_bytes: float | None


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
        run = growth_exponent(steps, [row.metric("run") or 0.0 for row in ran])
        space = growth_exponent(steps, [row.metric("temp_bytes") or 0.0 for row in ran])
        found.append(Growth(case.name, contender.name, tuple(row.size for row in ran), run, space))
    return found


def findings(case: Case, rows: Sequence[Row]) -> list[Finding]:
    """Every limit of a case, judged."""
    return [finding for limit in case.limits for finding in judge(case, limit, rows)]


def judge(case: Case, limit: Limit, rows: Sequence[Row]) -> list[Finding]:
    """One limit, judged at each size it speaks of."""
    match limit:
        case RatioLimit():
            sizes = sorted({row.size for row in rows if limit.size in (None, row.size)})
            return [ratio_finding(case, limit, size, rows) for size in sizes]
        case GrowthLimit():
            return [growth_finding(case, limit, rows)]
        case NoCopies():
            return [copies_finding(case, limit, rows)]


def ratio_finding(case: Case, limit: RatioLimit, size: int, rows: Sequence[Row]) -> Finding:
    """Ours over the peer's at one size."""
    ours, theirs = (
        next((row for row in rows if row.size == size and row.contender == name), None)
        for name in (case.ours.name, limit.peer)
    )
    what = f"{limit.metric} / {limit.peer}, n = {size}"
    ratio = measured_ratio(limit.metric, ours, theirs)
    if ratio is None:
        return Finding(case.name, what, limit.row, "not measured", f"{limit.at_most:g}", None)
    text = f"{ratio.median:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]"
    return Finding(
        case.name, what, limit.row, text, f"{limit.at_most:g}", meets(ratio, limit.at_most)
    )


def measured_ratio(metric: str, ours: Row | None, theirs: Row | None) -> Ratio | None:
    """The ratio of one metric; times have an interval, bytes are exact."""
    if ours is None or theirs is None:
        return None
    if metric == "run":
        return theirs.ratio
    if metric == "trace_lower":
        return theirs.lower_ratio
    a, b = ours.metric(metric), theirs.metric(metric)
    return None if a is None or not b else Ratio(a / b, a / b, a / b)


def growth_finding(case: Case, limit: GrowthLimit, rows: Sequence[Row]) -> Finding:
    """Our exponent for one metric."""
    name = case.ours.name
    mine = next((g for g in growths(case, rows) if g.contender == name), None)
    value = None if mine is None else (mine.run if limit.metric == "run" else mine.temp_bytes)
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

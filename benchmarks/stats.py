"""Medians, spread, paired ratios with bootstrap intervals, growth exponents and how a limit is read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PARITY_MEDIAN = 1.03
RESAMPLES = 2000
SEED = 20


@dataclass(frozen=True)
class Summary:
    """One series of samples in a few numbers; `spread` is the interquartile range over the median.

    Where each sample stands for a round of calls, `least` is of all single calls.
    """

    least: float
    median: float
    spread: float
    count: int


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios of neighbouring rounds, or of processes, and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


def summarise(samples: Sequence[float]) -> Summary:
    """The least, the median and the spread of some samples."""
    least, quarter, median, three_quarters = np.quantile(samples, [0.0, 0.25, 0.5, 0.75])
    spread = (three_quarters - quarter) / median if median else 0.0
    return Summary(float(least), float(median), float(spread), len(samples))


def paired_ratio(
    ours: Sequence[float], theirs: Sequence[float], resamples: int = RESAMPLES
) -> Ratio:
    """The median over rounds of ours over theirs in that round.

    The speed of a machine changes within seconds. Both sides of a round see the same speed, so it cancels in their
    ratio; in the ratio of two medians it does not, for each may come from another speed.
    """
    if len(ours) != len(theirs):
        counts = f"{len(ours)} and {len(theirs)}"
        raise ValueError(
            f"samples come in pairs, one per round: expected equal counts, got {counts}"
        )
    ratios = np.asarray(ours, float) / np.asarray(theirs, float)
    picks = np.random.default_rng(SEED).integers(0, len(ratios), (resamples, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [0.025, 0.975])
    return Ratio(float(np.median(ratios)), float(low), float(high))


def meets(ratio: Ratio, at_most: float) -> bool:
    """Whether a ratio keeps a limit; a limit of 1.0 asks for no difference that the noise can show."""
    if at_most == 1.0:
        return ratio.median <= PARITY_MEDIAN and ratio.low <= 1.0
    return ratio.median <= at_most


def growth_exponent(steps: Sequence[int], values: Sequence[float]) -> float | None:
    """The slope of log value over log steps; None when fewer than two values are positive."""
    points = [(s, v) for s, v in zip(steps, values, strict=True) if s > 0 and v > 0]
    if len({s for s, _ in points}) < 2:
        return None
    logs = np.log(np.asarray(points, float))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])

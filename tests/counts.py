"""The counts session: how often the steps of a loop run in its derivative, beside the best schedule for a known number.

    python tests/counts.py known unknown
    python tests/counts.py simulated --dense 100000

`known` and `unknown` run compiled programs, whose steps call Python, and compare the calls with the closed form of the
binomial schedule, or with the simulation of the online one. `simulated` prints for each number of slots how many
evaluations the online schedule takes, the primal loop included, over those that are best for a known count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from math import comb
from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, value_and_grad
from fiveloop.loops import fori_loop, while_loop
from fiveloop.loops.schedules import Binomial, Online
from fiveloop.loops.schedules.simulation import advanced, evaluations
from fiveloop.testing.loops.counted_steps import CountedSteps

LARGE = (
    *((100, 2), (100, 3), (100, 5), (100, 8), (128, 4), (128, 16), (200, 7), (256, 3), (256, 9)),
    *((300, 12), (333, 5), (400, 16), (500, 4), (512, 20), (640, 10), (777, 6), (1000, 5)),
    *((1000, 16), (1500, 8), (2000, 32)),
)
LONGEST = 100_000
X = np.float32(0.5)


def fewest(length: int, slots: int) -> int:
    """The fewest advances for a known count, by the closed form of the literature."""
    repeats = 0
    while comb(slots + repeats, slots) < length:
        repeats += 1
    return repeats * length - comb(slots + repeats, slots + 1)


Case = tuple[str, int, int, int, int]
"""The mode, the length, the slots, the steps that ran, and the steps that should have."""


def known() -> Iterator[Case]:
    """All lengths up to 64 with up to 16 slots, and some longer loops."""
    steps = CountedSteps()
    for slots in sorted({*range(1, 17), *(slots for _, slots in LARGE)}):

        def last(x: Any, length: Any, slots: int = slots) -> Any:
            start = (fnp.zeros((), np.int32), x)
            return fori_loop(0, length, lambda _, v: steps.step(v), start, checkpoints=slots)[1]

        slope, both = jit(grad(last)), jit(lambda x, n, f=last: value_and_grad(f)(x, n)[1])
        shorter = range(65) if slots <= 16 else ()
        for length in (*shorter, *(n for n, given in LARGE if given == slots)):
            best = fewest(length, slots) + length
            yield "grad", length, slots, steps.of(slope, X, np.int32(length)), best
            if length <= 64:
                yield "value_and_grad", length, slots, steps.of(both, X, np.int32(length)), best


def unknown() -> Iterator[Case]:
    """All lengths up to 64, and some longer ones."""
    steps = CountedSteps()
    for slots in (*range(1, 11), 12, 16, 32):

        def last(x: Any, length: Any, slots: int = slots) -> Any:
            start = (fnp.zeros((), np.int32), x)
            more = lambda val: val[0] < length
            return while_loop(more, steps.step, start, checkpoints=slots)[1]

        run = jit(grad(last))
        schedule = Online(slots) if slots > 1 else Binomial(slots)
        for length in (*range(65), 89, 144, 233, 377, 1000):
            total = int(evaluations(schedule, length).total)
            yield "unknown", length, slots, steps.of(run, X, np.int32(length)), total


def compared(cases: Iterator[Case]) -> bool:
    """Print the cases that differ, and how many there are; whether there is none."""
    number = wrong = 0
    for mode, length, slots, found, expected in cases:
        number += 1
        if found != expected:
            wrong += 1
            print(f"{mode}, {length} steps, {slots} slots: {found} ran, expected {expected}")
    print(f"{wrong} of {number} counts are wrong", flush=True)
    return not wrong


def simulated(dense: int) -> bool:
    """Print the ratios of the online schedule, of 3 to 10^5 steps; whether they are within their bounds."""
    lengths, length = [], 3
    while length <= LONGEST:
        lengths.append(length)
        length += max(1, length // 1000) if length >= dense else 1
    good = True
    for slots in (*range(4, 17), 20, 32, 64, 128):
        best = np.array([fewest(n, slots) + n for n in lengths])
        found = np.array([2 * n + advanced(Online(slots), n) for n in lengths])
        ratios, weights = found / best, np.gradient(np.log(lengths))
        mean, even = ratios.mean(), np.average(ratios, weights=weights)
        good &= ratios.max() <= (1.36 if slots < 10 else 1.3) and max(mean, even) <= 1.1
        print(
            f"{slots} slots, {len(lengths):,} lengths: at most {ratios.max():.3f}, at {lengths[ratios.argmax()]:,} "
            f"steps; mean {mean:.3f}, by the logarithm of the length {even:.3f}",
            flush=True,
        )
    return bool(good)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count what is asked for; 1 if a count or a ratio is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    modes = {"known": lambda: compared(known()), "unknown": lambda: compared(unknown())}
    names = [*modes, "simulated"]
    parser.add_argument("modes", nargs="*", default=names, metavar="MODE", help=", ".join(names))
    text = "simulate each length up to this; from there, lengths a thousandth apart"
    parser.add_argument("--dense", type=int, default=3_000, help=text)
    options = parser.parse_args(arguments)
    if wrong := [mode for mode in options.modes if mode not in names]:
        parser.error(f"expected {', '.join(names)}; got {wrong[0]}")
    modes["simulated"] = lambda: simulated(options.dense)
    results = [modes[mode]() for mode in options.modes]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

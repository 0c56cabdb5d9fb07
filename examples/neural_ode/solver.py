"""Dormand and Prince's adaptive method as one `while_loop`: a step is kept if its error is small, else tried again.

How many steps it takes depends on the solution, so it is known only at run time. The loop is differentiable in reverse
all the same: with `max_steps` its steps are taped, with `checkpoints` a few of its states are saved and the steps
between are run again.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fiveloop import numpy as fnp
from fiveloop.core import ArrayLike, Value, stop_gradient
from fiveloop.loops import while_loop

Field = Callable[[Value], Value]

# Row i weighs the first i slopes; the last row gives the new state, where the seventh slope is taken.
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
SAFETY, SLOWEST, FASTEST = 0.9, 0.2, 5.0  # of the change of a step's size
FIRST_STEP = 0.05


class Point(NamedTuple):
    """A point of a solution: its time, state and slope."""

    time: Value
    state: Value
    slope: Value


class Trial(NamedTuple):
    """A step that was tried: where it begins and ends, and whether its error is small enough."""

    before: Point
    after: Point
    is_kept: Value


class Solution(NamedTuple):
    """Where a solution is: its last point, the size of the next step, a total over steps, and how many were tried."""

    point: Point
    size: Value
    total: Value
    kept: Value
    rejected: Value


def solve(
    field: Field,
    start: ArrayLike,
    end: float,
    *,
    tolerance: float,
    gather: Callable[[Value, Trial], Value],
    total: ArrayLike,
    max_steps: int | None = None,
    checkpoints: int | None = None,
) -> Solution:
    """Follow a field from a state at time 0 to the time `end`.

    `gather` is called with `total` and each step that is tried, and gives the new total.
    """

    def goes_on(now: Solution) -> Value:
        return now.point.time < end

    def step(now: Solution) -> Solution:
        point = now.point
        # A last step that would leave less than a rounding error takes that too.
        left = end - point.time
        size = fnp.where(now.size > 0.999 * left, left, now.size)
        after, error = stepped(field, point, size)
        scale = tolerance * (1.0 + fnp.maximum(abs(point.state), abs(after.state)))
        # What the size of a step does to the result is as small as the error: no need to differentiate it.
        ratio = stop_gradient(fnp.sqrt(fnp.mean((error / scale) ** 2)))
        is_kept = ratio <= 1.0
        after = after._replace(time=fnp.where(size < left, after.time, end))
        new = Point(*(fnp.where(is_kept, a, b) for a, b in zip(after, point, strict=True)))
        change = fnp.clip(SAFETY * fnp.maximum(ratio, 1e-6) ** -0.2, SLOWEST, FASTEST)
        gathered = gather(now.total, Trial(point, after, is_kept))
        return Solution(new, size * change, gathered, now.kept + is_kept, now.rejected + ~is_kept)

    zero, count = fnp.zeros((), np.float32), fnp.zeros((), np.int32)
    state = fnp.asarray(start)
    begin = Point(zero, state, field(state))
    first = Solution(begin, zero + FIRST_STEP, fnp.asarray(total), count, count)
    return while_loop(goes_on, step, first, max_steps=max_steps, checkpoints=checkpoints)


def stepped(field: Field, point: Point, size: Value) -> tuple[Point, Value]:
    """The point after one step of a size, and an estimate of its error."""
    slopes = [point.slope]
    for weights in STAGES:
        state = point.state + size * weighted(weights, slopes)
        slopes.append(field(state))
    return Point(point.time + size, state, slopes[-1]), size * weighted(ERROR, slopes)


def weighted(weights: tuple[float, ...], slopes: list[Value]) -> Value:
    """A weighted sum of slopes."""
    terms = [w * slope for w, slope in zip(weights, slopes, strict=True) if w]
    return sum(terms[1:], terms[0])


def between(trial: Trial, times: Value) -> tuple[Value, Value]:
    """The states at some times on the cubic through both ends of a step, and which of the times the step has kept.

    times : [n],  result : [n, *state]
    """
    (begin, a, a_slope), (end, b, b_slope) = trial.before, trial.after
    size = end - begin
    share = (times - begin) / size
    inside = (share > 0.0) & (share <= 1.0) & trial.is_kept
    x = fnp.where(inside, share, 0.0)[:, None]
    rising = x * x * (3.0 - 2.0 * x)
    bends = x * (1.0 - x) * ((1.0 - x) * a_slope - x * b_slope)
    return (1.0 - rising) * a + rising * b + size * bends, inside

"""What the fitted model does alone: one solution over the held-out part, and what each step of its solver was."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fiveloop import numpy as fnp
from fiveloop.core import Value, jit
from fiveloop.state import new_ref

from .data import HELD_OUT, MILLISECONDS, STEP, Recording, millivolts, spikes
from .model import Params, slope
from .solver import Trial, between, solve

MOST_TRIALS = 4000


@dataclass(frozen=True)
class FreeRun:
    """A solution beside the recording, in millivolts and milliseconds, and the steps that the solver tried."""

    time: npt.NDArray[np.float64]
    recorded: npt.NDArray[np.float64]
    solved: npt.NDArray[np.float64]
    begins: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.float64]
    is_kept: npt.NDArray[np.bool_]

    @property
    def spread(self) -> float:
        """The root of the mean square distance, in millivolts."""
        return float(np.sqrt(np.mean((self.solved - self.recorded) ** 2)))

    def interval(self, potential: npt.NDArray[np.float64]) -> float:
        """The mean time between spikes, in milliseconds."""
        found = spikes((potential + 40.0) / 20.0)
        return float(np.mean(np.diff(found))) * MILLISECONDS if len(found) > 1 else float("nan")


def free_run(params: Params, recording: Recording, tolerance: float) -> FreeRun:
    """Start from the first held-out state, and never look at the recording again."""
    first, last = HELD_OUT
    run = jit(partial(followed, length=last - first - 1, tolerance=tolerance))
    solved, trials, count = run(params, recording.state(first))
    begins, sizes, is_kept = np.asarray(trials, np.float64).T[:, : int(count)]
    scale = MILLISECONDS / STEP
    return FreeRun(
        MILLISECONDS * np.arange(1.0, last - first),
        millivolts(recording.potential[first + 1 : last]),
        millivolts(solved),
        scale * begins,
        scale * sizes,
        is_kept > 0.0,
    )


def followed(
    params: Params, start: Value, *, length: int, tolerance: float
) -> tuple[Value, Value, Value]:
    """The potential at each sample, and of each step that is tried its begin, size and whether it is kept.

    The steps are written to a Ref: as many rows as the solver tries.
    """
    times = STEP * fnp.arange(1.0, length + 1.0, dtype=np.float32)
    trials = new_ref(fnp.zeros((MOST_TRIALS, 3), np.float32))
    count = new_ref(fnp.zeros((), np.int32))

    def gather(potential: Value, trial: Trial) -> Value:
        begin, end = trial.before.time, trial.after.time
        trials[count[...]] = fnp.stack([begin, end - begin, trial.is_kept.astype(np.float32)])
        count[...] += 1
        states, inside = between(trial, times)
        return fnp.where(inside, states[:, 0], potential)

    solution = solve(
        lambda state: slope(params, state),
        start,
        STEP * (length + 0.5),  # beyond the last sample
        tolerance=tolerance,
        gather=gather,
        total=fnp.zeros((length,), np.float32),
    )
    return solution.total, trials[...], count[...]

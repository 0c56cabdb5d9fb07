"""A recorded neuron: the membrane potential behind matplotlib's first logo, which every matplotlib carries.

The file holds 12,000 samples, half a millisecond apart. After a second a current makes the neuron fire; for the first
three seconds it does so regularly, about fourteen times a second.
"""

from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

MILLISECONDS = 0.5  # between samples
MILLIVOLTS = 100.0  # of one unit of the file
STEP = 0.05  # between samples, in units of ten milliseconds
FITTED = (4100, 5500)  # the samples that the model is fitted to
HELD_OUT = (5500, 6900)  # those that it is judged by
HALF_WINDOW, DEGREE = 4, 3  # of the polynomials that smooth the recording


@dataclass(frozen=True)
class Recording:
    """The potential in units of 20 mV around -40 mV, and the value and derivative of its smoothed course."""

    potential: Samples
    smooth: Samples
    slope: Samples

    def state(self, sample: int | npt.NDArray[np.int64]) -> Samples:
        """The smoothed potential and derivative at some samples: [..., 2]."""
        states: Samples = np.stack([self.smooth[sample], self.slope[sample]], -1)
        return states


def load_recording(path: Path | None = None) -> Recording:
    """Read the recording from matplotlib's sample data."""
    path = path or Path(matplotlib.get_data_path()) / "sample_data" / "membrane.dat"
    potential = (MILLIVOLTS * np.fromfile(path, np.float32) + 40.0) / 20.0
    smooth, slope = smoothed(potential)
    return Recording(potential, smooth, slope)


def millivolts(potential: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """A potential in millivolts."""
    return 20.0 * np.asarray(potential, np.float64) - 40.0


def smoothed(potential: Samples) -> tuple[Samples, Samples]:
    """The value and the derivative of a cubic fitted to the neighbours of each sample."""
    places = STEP * np.arange(-HALF_WINDOW, HALF_WINDOW + 1)
    fit = np.linalg.pinv(np.vander(places, DEGREE + 1, increasing=True))
    value, slope = (np.convolve(potential, row[::-1], "same") for row in fit[:2])
    return value.astype(np.float32), slope.astype(np.float32)


@dataclass(frozen=True)
class Segments:
    """Pieces of a recording: the state at the beginning of each, and the samples that follow."""

    starts: Samples
    samples: Samples


def draw_segments(
    recording: Recording, draw: np.random.Generator, *, count: int, length: int
) -> Segments:
    """Pieces of so many samples, from anywhere in the fitted part."""
    first, last = FITTED
    begins = draw.integers(first, last - length, count)
    return Segments(
        recording.state(begins), recording.potential[begins[:, None] + np.arange(1, length + 1)]
    )


def spikes(potential: npt.ArrayLike, threshold: float = 0.8) -> npt.NDArray[np.int64]:
    """The samples at which a potential rises above a threshold."""
    above = np.asarray(potential) > threshold
    return np.flatnonzero(above[1:] & ~above[:-1])

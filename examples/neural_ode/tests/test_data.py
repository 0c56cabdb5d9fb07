"""The recording: what it holds, and pieces of it."""

import numpy as np
from neural_ode.data import (
    FITTED,
    HELD_OUT,
    STEP,
    draw_segments,
    load_recording,
    millivolts,
    smoothed,
    spikes,
)


def test_the_recording_rests_then_fires_regularly() -> None:
    recording = load_recording()
    assert recording.potential.shape == (12_000,)
    assert -68.0 < millivolts(recording.potential[:1000]).mean() < -65.0
    for first, last in (FITTED, HELD_OUT):
        intervals = np.diff(spikes(recording.potential[first:last]))
        assert 8 <= len(intervals) <= 9
        assert np.all((intervals >= 140) & (intervals <= 147))


def test_smoothing_keeps_a_cubic_and_gives_its_derivative() -> None:
    x = STEP * np.arange(60.0)
    value, slope = smoothed((x**3 - 2.0 * x).astype(np.float32))
    inside = slice(5, -5)
    np.testing.assert_allclose(value[inside], (x**3 - 2.0 * x)[inside], atol=1e-4)
    np.testing.assert_allclose(slope[inside], (3.0 * x**2 - 2.0)[inside], atol=1e-3)


def test_segments_are_pieces_of_the_fitted_part_and_a_seed_decides_them() -> None:
    recording = load_recording()
    one, same = (
        draw_segments(recording, np.random.default_rng(3), count=5, length=20) for _ in range(2)
    )
    np.testing.assert_array_equal(one.samples, same.samples)
    assert one.starts.shape == (5, 2)
    first, last = FITTED
    fitted = recording.potential[first:last]
    windows = np.lib.stride_tricks.sliding_window_view(fitted, 20)
    for samples in one.samples:
        assert np.any(np.all(windows == samples, 1))


def test_a_spike_is_a_rise_above_the_threshold() -> None:
    assert spikes([0.0, 1.0, 1.0, 0.0, 0.9, 0.0]).tolist() == [0, 3]

"""Whether two sides computed the same named arrays."""

from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]


def largest_error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the largest magnitude wanted; infinite where a shape or a NaN differs."""
    if got.shape != want.shape:
        return float("inf")
    if not want.size:
        return 0.0
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(got64), np.isfinite(want64)):
        return float("inf")
    finite = np.isfinite(want64)
    if not finite.any():
        return 0.0
    scale = float(np.abs(want64[finite]).max()) or 1.0
    return float(np.abs(got64[finite] - want64[finite]).max()) / scale


def disagreements(got: Arrays, want: Arrays, rtol: float) -> list[str]:
    """One sentence for each named array that is missing or too far off."""
    missing = [f"{name}: only one side has it" for name in sorted(set(got) ^ set(want))]
    errors = {name: largest_error(got[name], want[name]) for name in sorted(set(got) & set(want))}
    far = [
        f"{name}: expected a relative error of at most {rtol:g}, got {error:.3g} "
        f"(shapes {got[name].shape}, {want[name].shape})"
        for name, error in errors.items()
        if not error <= rtol
    ]
    return missing + far

"""The number of steps of a loop, from the lengths of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fiveloop.core import Value, ad, errors, prims, pytree
from fiveloop.core.trace.tracer import Tracer
from fiveloop.loops.common import check_one_size
from fiveloop.loops.tracing import check_steps


def computed(length: Any, xs: Any, ends: bool) -> Value | None:
    """The number of steps if it is computed, None if it is known; it is at most as many as there are slices.

    `ends` says that the loop has a condition that ends it.
    """
    sizes = [x.shape[0] for x in pytree.tree_leaves(xs) if getattr(x, "shape", ())]
    if not isinstance(length, Value) or not (sizes or isinstance(length, Tracer)):
        return None
    if length.ndim or length.dtype.kind not in "iu":
        raise TypeError(f"scan: length must be an integer scalar, got {length.aval}")
    if ends:
        raise TypeError(
            f"scan: length must be an integer known while tracing where `until` is given, got {length!r}; "
            f"{errors.STATIC}"
        )
    if not sizes:
        raise TypeError(
            f"scan: without xs, length must be an integer known while tracing, which says how long the ys are, got "
            f"{length!r}; {errors.STATIC}, or use `fori_loop`"
        )
    return prims.convert(prims.clamp(0, prims.convert(length, np.int64), min(sizes)), np.int32)


def leading_axes(what: str, xs: Any, leaves: ad.Values) -> dict[str, int]:
    """The length of the first axis of each leaf, by its name; one without axes is refused."""
    sizes: dict[str, int] = {}
    for x, (path, _) in zip(leaves, pytree.tree_flatten_with_path(xs)[0], strict=True):
        if not x.ndim:
            raise ValueError(
                f"{what}: xs{pytree.keystr(path)} has no axis to {what} over, its type is {x.aval}"
            )
        sizes[f"xs{pytree.keystr(path)}"] = x.shape[0]
    return sizes


def common_length(what: str, sizes: Mapping[str, int]) -> int:
    """The number that all of them name."""
    check_one_size(f"{what}: leading axes", sizes)
    return check_steps(f"{what}: the number of steps", next(iter(sizes.values())))

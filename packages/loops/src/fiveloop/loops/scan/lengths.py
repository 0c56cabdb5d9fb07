"""How many steps the inputs of a loop are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiveloop.core import ad, pytree
from fiveloop.loops.tracing import check_steps


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
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(f"{what}: leading axes differ: {shown}")
    return check_steps(f"{what}: the number of steps", next(iter(sizes.values())))

"""`scan` where bodies run as Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fiveloop.core import (
    Value,
    as_result,
    at_source,
    concatenate,
    convert,
    current_source,
    flatten_values,
    keystr,
    reshape,
    tree_flatten_with_path,
    tree_unflatten,
)
from fiveloop.loops.common import joined
from fiveloop.loops.for_loop.as_python import counters


def scan_as_python(
    what: str,
    f: Callable[[Value, Any, Any], Any],
    init: Any,
    xs: Any,
    steps: int,
    reverse: bool,
    unroll: int,
) -> tuple[Any, Any]:
    """As `indexed_scan`, for at least one step."""
    carry, carry_tree = flatten_values(init, f"{what}: init")
    slices, xs_tree = flatten_values(xs, f"{what}: xs")
    rows: list[list[Value]] = []
    ys_tree: Any = None
    for i in counters(steps, reverse):
        x = tree_unflatten(xs_tree, [x[i] for x in slices])
        out = f(i, tree_unflatten(carry_tree, [as_result(c) for c in carry]), x)
        if not isinstance(out, tuple) or len(out) != 2:
            raise TypeError(
                f"{what}: the function must return a pair (carry, y), got {type(out).__name__}"
                f"{at_source(current_source())}"
            )
        carry = next_carry(what, "carry", carry, carry_tree, out[0])
        ys, ys_tree = flatten_values(out[1], f"{what}: y")
        rows.append(ys)
    stacked = [_stack(column[::-1] if reverse else column) for column in zip(*rows, strict=True)]
    final = [_strong(x) for x in carry]
    return tree_unflatten(carry_tree, final), tree_unflatten(ys_tree, stacked)


def next_carry(what: str, name: str, given: Sequence[Value], tree: Any, out: Any) -> list[Value]:
    """The carry that a step gave, which must have the structure and types of the one before."""
    leaves, out_tree = flatten_values(out, f"{what}: the {name} returned")
    if out_tree != tree:
        raise TypeError(
            f"{what}: the {name} must keep its structure, {tree}, got {out_tree}{at_source(current_source())}"
        )
    paths = [keystr(path) for path, _ in tree_flatten_with_path(out)[0]]
    carry = []
    for path, a, b in zip(paths, given, leaves, strict=True):
        found = joined(a.aval, b.aval)
        if found is None or (found.strong() is not a.aval.strong() and not a.weak_type):
            raise TypeError(
                f"{what}: the {name} must keep its types, but {name}{path} goes in as {a.aval} and comes out as "
                f"{b.aval}; convert with astype{at_source(current_source())}"
            )
        same = b.aval.strong() is found.strong()
        carry.append(b if same else convert(b, found.dtype, found.weak_type))
    return carry


def _strong(x: Value) -> Value:
    return convert(as_result(x), x.dtype)


def _stack(ys: Sequence[Value]) -> Value:
    return concatenate([reshape(_strong(y), (1, *y.shape)) for y in ys], 0)

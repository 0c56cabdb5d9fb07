"""`scan` in `disable_jit`: the body runs as Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import Value, ad, arrays, prims, pytree, transforms
from fiveloop.core.api.flatten import as_result, flatten_values
from fiveloop.loops.carry import check_pair, counters, next_carry
from fiveloop.loops.common import check_values, condition, strong
from fiveloop.loops.options import Scan
from fiveloop.loops.progress.bars import shown


def scan_as_python(asked: Scan) -> tuple[Any, ...]:
    """As `indexed_scan`, for at least one step."""
    what, f, how, steps, count = asked.what, asked.f, asked.how, asked.steps, asked.count
    carry, carry_tree = flatten_values(asked.init, f"{what}: {how.init}")
    slices, xs_tree = flatten_values(asked.xs, f"{what}: xs")
    rows: list[list[Value]] = []
    ys_tree: Any = None
    with shown(how.progress, steps) as step_done:
        for i in counters(steps if count is None else int(count), how.reverse):
            x = pytree.tree_unflatten(xs_tree, [x[i] for x in slices])
            out = f(i, pytree.tree_unflatten(carry_tree, [as_result(c) for c in carry]), x)
            check_pair(what, f, out)
            carry = next_carry(what, "carry", f, carry, carry_tree, out[0])
            ys, ys_tree = flatten_values(out[1], f"{what}: y")
            check_values(f"{what}: y", out[1], ys)
            rows.append(ys)
            step_done()
            if how.until is not None and bool(
                condition(f"{what}: until", "(carry)", how.until, out[0])
            ):
                break
    taken = len(rows)
    empty = [[transforms.zeros_of(y.aval) for y in rows[-1]]] * (steps - taken)
    rows = [*empty, *rows] if count is not None and how.reverse else [*rows, *empty]
    stacked = [
        _stack(column[::-1] if how.reverse else column) for column in zip(*rows, strict=True)
    ]
    final = [strong(x) for x in carry]
    told = [] if how.until is None else [as_result(arrays.as_value(np.int32(taken)))]
    return pytree.tree_unflatten(carry_tree, final), pytree.tree_unflatten(ys_tree, stacked), *told


def _stack(ys: ad.Values) -> Value:
    return prims.concatenate([prims.reshape(strong(y), (1, *y.shape)) for y in ys], 0)

"""`associative_scan`: the running results of an associative function, in O(log n) rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from operator import index
from typing import Any

from fiveloop.core import TreeDef, Value, ir, prims, pytree, trace
from fiveloop.core.api.flatten import as_result, call_user, check_callable, flatten_values
from fiveloop.core.util import T
from fiveloop.loops import common
from fiveloop.loops.options import How, Scan
from fiveloop.loops.scan.api import scan_of
from fiveloop.state import Ref

Leaves = list[Value]
Combine = Callable[[Leaves, Leaves], Leaves]


@trace.boundary
def associative_scan(
    fn: Callable[[T, T], T],
    elems: T,
    reverse: bool = False,
    axis: int = 0,
    *,
    block: int | None = None,
) -> T:
    """The running results `x[0]`, `fn(x[0], x[1])`, `fn(fn(x[0], x[1]), x[2])`, ... along an axis of `elems`.

    `elems` is a pytree of arrays of one length along `axis`. `fn(a, b)` must be associative. It is called with slices
    of several elements at once, which keep `axis`, and must combine each pair of elements independently of the others.
    With `reverse` the results run from the end. Pairs are combined, then pairs of pairs: about 2 n calls' worth of work
    in 2 log2(n) rounds. With `block`, blocks of that many elements are scanned in order, all blocks at once, and only
    the totals of the blocks are combined in rounds: this takes less memory and compiles faster, but runs `block` more
    rounds.

    Raises TypeError if `fn` changes the structure or the types; ValueError if lengths along `axis` differ.

    >>> import fiveloop.numpy as fnp
    >>> associative_scan(lambda a, b: a * b, fnp.arange(1.0, 5.0))
    Array([ 1.,  2.,  6., 24.], dtype=float32)

    The algorithm: Blelloch, "Prefix sums and their applications" (1990).
    """
    check_callable("associative_scan: fn", fn)
    backwards = common.as_flag("associative_scan: reverse", reverse)
    leaves, tree = flatten_values(elems, "associative_scan: elems")
    axes = [
        _axis_of(x, axis, path) for x, path in zip(leaves, pytree.leaf_paths(tree), strict=True)
    ]
    size = _common_size(leaves, axes, tree)
    if block is not None:
        block = common.as_count("associative_scan: block", block)
    if size < 2:
        return pytree.tree_unflatten(tree, [as_result(x) for x in leaves])  # type: ignore[no-any-return]
    in_front = [prims.move_axis(x, at, 0) for x, at in zip(leaves, axes, strict=True)]
    if backwards:
        in_front = [x[::-1] for x in in_front]
    combine = wraps(fn)(partial(_combine, fn, tree, axes))
    out = _in_rounds(combine, in_front) if block is None else _in_blocks(combine, in_front, block)
    if backwards:
        out = [x[::-1] for x in out]
    back = [prims.move_axis(x, 0, at) for x, at in zip(out, axes, strict=True)]
    return pytree.tree_unflatten(tree, back)  # type: ignore[no-any-return]


def _combine(
    fn: Callable[[Any, Any], Any], tree: TreeDef, axes: Sequence[int], a: Leaves, b: Leaves
) -> Leaves:
    """The user's function on leaves whose axis is in front."""
    given = [
        pytree.tree_unflatten(
            tree, [prims.move_axis(x, 0, at) for x, at in zip(xs, axes, strict=True)]
        )
        for xs in (a, b)
    ]
    out = call_user("associative_scan: fn", "(a, b)", fn, *given)
    leaves, out_tree = flatten_values(out, "associative_scan: the result of fn")
    if out_tree != tree:
        places = common.changed_places("elems", tree, out_tree, a, leaves)
        advice = common.NO_RETURN if out is None else ""
        raise TypeError(
            f"associative_scan: fn must keep the structure of its arguments, but in `{ir.function_source(fn)}` "
            f"{places}{advice}"
        )
    found = [
        prims.move_axis(x, at, 0) if x.ndim > at else x for x, at in zip(leaves, axes, strict=True)
    ]
    wrong = [
        f"result{path} is {new.aval} and should be {old.aval}"
        for path, new, old in zip(pytree.leaf_paths(tree), found, a, strict=True)
        if new.shape != old.shape or new.dtype != old.dtype
    ]
    if wrong:
        raise TypeError(
            f"associative_scan: fn must keep the types of its arguments, but in `{ir.function_source(fn)}` "
            f"{'; '.join(wrong)}; work on each of the slices along the axis alone, or convert with astype"
        )
    return found


def _in_rounds(combine: Combine, xs: Leaves) -> Leaves:
    """Combine pairs, find the running results of these, and fill in those between them."""
    size = xs[0].shape[0]
    if size == 1:
        return xs
    pairs = size // 2
    first, second = [x[0 : 2 * pairs : 2] for x in xs], [x[1 : 2 * pairs : 2] for x in xs]
    after_pairs = _in_rounds(combine, combine(first, second))
    # What comes before the k-th element of an even place is what k pairs give together.
    evens = [x[2::2] for x in xs]
    between = evens[0].shape[0]
    if between:
        evens = combine([x[:between] for x in after_pairs], evens)
    starts = [prims.concatenate([x[:1], e], 0) for x, e in zip(xs, evens, strict=True)]
    return [_alternate(a, b) for a, b in zip(starts, after_pairs, strict=True)]


def _alternate(evens: Value, odds: Value) -> Value:
    """The rows of two arrays in turn; the first may have one more."""
    count, shape = odds.shape[0], odds.shape[1:]
    both = prims.concatenate(
        [prims.reshape(x[:count], (count, 1, *shape)) for x in (evens, odds)], 1
    )
    rows = prims.reshape(both, (2 * count, *shape))
    return rows if evens.shape[0] == count else prims.concatenate([rows, evens[count:]], 0)


def _in_blocks(combine: Combine, xs: Leaves, block: int) -> Leaves:
    """Run through blocks in order, all at once; put the running totals of those before in front of each."""
    blocks, rest = divmod(xs[0].shape[0], block)
    if blocks < 2:
        return _in_order(combine, [x[:, None] for x in xs])
    whole = [x[: blocks * block] for x in xs]
    within = _in_order(
        combine,
        [prims.move_axis(prims.reshape(x, (blocks, block, *x.shape[1:])), 0, 1) for x in whole],
    )
    by_block = [prims.reshape(x, (blocks, block, *x.shape[1:])) for x in within]
    totals = _in_rounds(combine, [x[:, -1] for x in by_block])
    before = [x[:-1].repeat(block, axis=0) for x in totals]
    later = combine(before, [x[block:] for x in within])
    out = [prims.concatenate([x[:block], y], 0) for x, y in zip(within, later, strict=True)]
    if not rest:
        return out
    tail = _in_order(combine, [x[blocks * block :, None] for x in xs])
    tail = combine([x[-1:].repeat(rest, axis=0) for x in totals], tail)
    return [prims.concatenate([x, y], 0) for x, y in zip(out, tail, strict=True)]


def _in_order(combine: Combine, steps: Leaves) -> Leaves:
    """Running results over the first axis, for each place of the second, in one axis with the second outermost."""

    @wraps(combine)
    def step(i: Value, before: Leaves, x: Leaves) -> tuple[Leaves, Leaves]:
        now = combine(before, x)
        return now, now

    first = [x[0] for x in steps]
    count = steps[0].shape[0] - 1
    rest = [x[1:] for x in steps]
    later = scan_of(Scan("associative_scan", step, first, rest, count, How()))[1]
    runs = [prims.concatenate([x[None], y], 0) for x, y in zip(first, later, strict=True)]
    rows = [prims.move_axis(x, 1, 0) for x in runs]
    return [prims.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) for x in rows]


def _axis_of(x: Value, axis: Any, path: str) -> int:
    if isinstance(x, Ref):
        raise TypeError(
            f"associative_scan: elems{path} must be an array, got a Ref of type {x.aval}; read it: `ref[...]`"
        )
    expected = f"associative_scan: axis must be an axis of elems{path}, of type {x.aval}"
    if isinstance(axis, bool | trace.Tracer) or not hasattr(axis, "__index__"):
        raise common.wrong_type(expected, axis)
    number = index(axis)
    if not -x.ndim <= number < x.ndim:
        raise ValueError(f"{expected}, got {axis!r}")
    return number % x.ndim


def _common_size(leaves: Leaves, axes: Sequence[int], tree: TreeDef) -> int:
    sizes = {
        f"elems{path}": x.shape[at]
        for path, x, at in zip(pytree.leaf_paths(tree), leaves, axes, strict=True)
    }
    if not sizes:
        raise ValueError(f"associative_scan: elems must hold at least one array, got {tree}")
    common.check_one_size("associative_scan: lengths along the axis", sizes)
    return next(iter(sizes.values()))

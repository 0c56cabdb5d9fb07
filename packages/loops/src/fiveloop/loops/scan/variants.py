"""`fori_loop` and `map`, written on `scan`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from fiveloop.core import TreeDef, Value, ad, arrays, prims, pytree, trace
from fiveloop.core.api import batching, flatten
from fiveloop.core.util import T
from fiveloop.loops import common, options
from fiveloop.loops.carry import check_carry
from fiveloop.loops.options import How, Limits, Scan, Unroll
from fiveloop.loops.progress.api import Progress, Shown, mark
from fiveloop.loops.scan import api
from fiveloop.loops.schedules.binomial import Slots
from fiveloop.loops.tracing import check_steps
from fiveloop.loops.while_loop.api import While, Written, while_of
from fiveloop.state import Ref

X = TypeVar("X")
Y = TypeVar("Y")
_BODY = ("fori_loop: the body", "(i, val)")


@trace.boundary
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, T], T],
    init_val: T,
    *,
    unroll: Unroll = "auto",
    checkpoints: Slots | None = None,
    progress: Shown = False,
) -> T:
    """Run `val = body_fun(i, val)` for i = lower ... upper - 1, and return the final `val`.

    `body_fun` must preserve the structure, shapes and dtypes of the value. With bounds that are known while tracing,
    the loop is a `for`; with traced bounds it is a `while_loop`. Both are differentiable in both modes. `i` has the
    dtype of the bounds: int32 for Python integers that fit it, int64 for larger ones. Bounds may be floats: known ones
    must be whole numbers, and count as integers; with traced ones `i` is a float, `lower`, `lower + 1` ... below
    `upper`. A Ref in the value is written in place, and `body_fun` must return it. With `checkpoints=k` reverse mode
    saves at most k values at a time, or those of a schedule, and recomputes the others; they stay in the memory of the
    device, also under a policy that offloads. With `progress` (True, a label, or a `Progress`) a bar shows the progress
    of the loop.

    Raises TypeError if `body_fun` changes the structure or a type of the value, with the leaf's path and both types;
    ValueError if a known bound is not whole.

    >>> fori_loop(0, 4, lambda i, total: total + i, 0)
    Array(6, dtype=int32)
    """
    flatten.check_callable("fori_loop: body_fun", body_fun)
    low, high = _bound("lower", lower), _bound("upper", upper)
    counter = _counter_type(low, high)
    bar = options.as_progress("fori_loop", progress)
    if isinstance(low, arrays.Concrete) and isinstance(high, arrays.Concrete):
        dtype = counter.dtype
        first = dtype.type(int(low))
        steps = check_steps("fori_loop: the number of steps", max(0, int(high) - int(low)))

        @wraps(body_fun)
        def step(k: Value, val: T, _: None) -> tuple[T, None]:
            i = prims.convert(k, dtype)
            return flatten.call_user(*_BODY, body_fun, i + first if first else i, val), None

        turn = options.check_unroll("fori_loop", unroll, steps)
        saved = options.check_checkpoints("fori_loop", checkpoints, steps)
        how = How(unroll=turn, progress=bar, init="init_val", checkpoints=saved)
        out: T = api.scan_of(Scan("fori_loop", step, init_val, None, steps, how))[0]
        return out
    options.check_unroll("fori_loop", unroll, 1)
    saved = options.check_checkpoints("fori_loop", checkpoints)
    low, high = (prims.convert(x, counter.dtype, counter.weak_type) for x in (low, high))
    if counter.dtype.kind in "iu":
        return _while_bounds(low, high, body_fun, init_val, bar, saved)

    @wraps(body_fun)
    def counting_from_low(k: Value, val: T) -> T:
        return flatten.call_user(*_BODY, body_fun, low + prims.convert(k, counter.dtype), val)  # type: ignore[no-any-return]  # checked by the step

    # Counted in integers: a float that is large stays what it is when one is added.
    count = prims.convert(prims.ceil(high - low), np.int64)
    zero = prims.convert(0, np.int64)
    return _while_bounds(zero, count, counting_from_low, init_val, bar, saved)


def _bound(name: str, given: Any) -> Value:
    """A bound of a loop; a known bound must be an integer."""
    value = arrays.as_value(given, f"fori_loop: {name}")
    if isinstance(value, Ref) or value.ndim or value.dtype.kind not in "iufV":
        raise TypeError(f"fori_loop: {name} must be an integer or a float scalar, got {value.aval}")
    if not isinstance(value, arrays.Concrete) or value.dtype.kind in "iu":
        return value
    if not float(value).is_integer():
        raise ValueError(
            f"fori_loop: {name} must be a whole number where it is known, got {float(value)}; round it"
        )
    return arrays.as_value(int(float(value)))


def _counter_type(low: Value, high: Value) -> arrays.Typed:
    """The common type of the bounds; numbers outside of its range are refused."""
    types = (arrays.Typed(low.dtype, low.weak_type), arrays.Typed(high.dtype, high.weak_type))
    counter = arrays.join(types)
    if any(t.dtype.kind not in "iu" for t in types):
        return counter
    if counter.dtype.kind not in "iu":
        raise TypeError(
            f"fori_loop: lower and upper must have an integer dtype in common, got {low.aval} and {high.aval}; convert "
            f"one of them with astype"
        )
    info = np.iinfo(counter.dtype)
    for name, bound in (("lower", low), ("upper", high)):
        if isinstance(bound, arrays.Concrete) and not info.min <= int(bound) <= info.max:
            raise OverflowError(
                f"fori_loop: {name} must fit {counter.dtype.name}, the dtype of the other bound, got {int(bound)}; "
                f"give the other as np.int64"
            )
    return counter


def _while_bounds(
    low: Value,
    high: Value,
    body_fun: Callable[[Any, T], T],
    init_val: T,
    bar: Progress | None,
    saved: Slots | None,
) -> T:
    """`fori_loop` with bounds that are computed: a `while`, of a value that may hold Refs."""

    @wraps(body_fun)
    def body(i: Value, val: T) -> T:
        return flatten.call_user(*_BODY, body_fun, i, val)  # type: ignore[no-any-return]  # checked by the step

    refs = common.carried_refs("fori_loop: the carry", init_val)
    run, first = (body, init_val) if refs is None else (refs.carrying(body, 1), refs.values)
    flatten.flatten_values(first, "fori_loop: init_val")
    # For the bar alone, which counts in int32.
    steps = prims.convert(high - low, np.int32)

    def more(carry: tuple[Any, T]) -> Any:
        return carry[0] < high

    @wraps(body_fun)
    def step(carry: tuple[Any, T]) -> tuple[Any, T]:
        i, val = carry
        if bar is not None:
            mark(bar, steps)
        out = run(i, val)
        check_carry("fori_loop", run, val, out)
        return i + 1, out

    written = Written("fori_loop", _counted_names, ADVICE)
    limits = Limits(slots=saved, counted=True)
    out: tuple[Any, T] = while_of(While(more, step, (low, first), None, written, limits))
    # As the loop whose bounds are known gives them.
    final: T = pytree.tree_map(common.strong, out[1])
    return final if refs is None else refs.whole(final)


ADVICE = "give bounds that are Python numbers"


def _counted_names(tree: TreeDef) -> list[str]:
    """What is carried: a counter, and what the user carries."""
    return [
        "counter",
        *[f"carry{path.removeprefix('[1]')}" for path in pytree.leaf_paths(tree)[1:]],
    ]


@trace.boundary
def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None, progress: Shown = False) -> Y:
    """`f` applied to each slice of `xs` along its leading axis, one after the other, results stacked.

    The slices of a Ref are Refs: writes of `f` to a slice go to the Ref. With `batch_size`, `f` runs on that many
    slices at once, by `vmap`; the last batch may be smaller. With 0 all slices are one batch. Raises ValueError if the
    leading axes of `xs` differ. With `progress` (True, a label, or a `Progress`) a bar shows how many slices, or whole
    batches, are done.

    >>> import fiveloop.numpy as fnp
    >>> map(lambda x: x * x, fnp.arange(3.0))
    Array([0., 1., 4.], dtype=float32)
    """
    flatten.check_callable("map: f", f)
    leaves, tree = flatten.flatten_values(xs, "map: xs")
    if not leaves:
        raise ValueError(f"map: xs must hold at least one array, got {tree}")
    how = How(progress=options.as_progress("map", progress))
    steps = api.common_length("map", api.leading_axes("map", xs, leaves))
    if batch_size is None:
        out: Y = api.scan_of(Scan("map", _mapped(f, f), (), xs, steps, how))[1]
        return out
    size = common.as_count("map: batch_size", batch_size, least=0)
    return _in_batches(f, leaves, tree, size or max(steps, 1), how)


def _mapped(f: Callable[[Any], Any], run: Callable[[Any], Any]) -> Callable[..., Any]:
    """A step without a carry that runs the user's function, or what is made of it."""

    @wraps(f)
    def step(i: Value, carry: Any, x: Any) -> Any:
        return (), flatten.call_user("map: the function", "(x)", run, x)

    return step


def _part(x: Value, index: Any) -> Value:
    """What is at an index; of a Ref, that part of it."""
    return x.at[index] if isinstance(x, Ref) else x[index]


def _in_batches(
    f: Callable[[X], Y], leaves: ad.Values, tree: TreeDef, batch_size: int, how: How
) -> Y:
    """So many slices at a time, and those that are left over."""
    batches, rest = divmod(leaves[0].shape[0], batch_size)

    @wraps(f)
    def one(x: X) -> Y:
        out: Y = flatten.call_user("map: the function", "(x)", f, x)
        return out

    whole = pytree.tree_unflatten(
        tree,
        [
            _part(x, slice(batches * batch_size)).reshape(batches, batch_size, *x.shape[1:])
            for x in leaves
        ],
    )
    step = _mapped(f, batching.vmap(one))
    done = api.scan_of(Scan("map", step, (), whole, batches, how))[1]
    out: Y = pytree.tree_map(lambda y: y.reshape(-1, *y.shape[2:]), done)
    if not rest:
        return out
    last = batching.vmap(one)(
        pytree.tree_unflatten(tree, [_part(x, slice(batches * batch_size, None)) for x in leaves])
    )
    whole_out: Y = pytree.tree_map(lambda a, b: prims.concatenate([a, b], 0), out, last)
    return whole_out

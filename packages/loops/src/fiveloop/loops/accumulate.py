"""`accumulate_grads`: the gradient of a large batch, computed a microbatch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from operator import index
from typing import Any, Concatenate, Literal, TypedDict, TypeVar, Unpack, overload

import numpy as np

from fiveloop.core import Value, arrays, ir, prims, pytree, trace, transforms
from fiveloop.core.api.flatten import argument_name, check_callable, flatten_values, function_name
from fiveloop.core.api.gradient import value_and_grad
from fiveloop.core.util import P, R
from fiveloop.loops import common
from fiveloop.loops.options import How, Scan, as_progress
from fiveloop.loops.progress.api import Shown
from fiveloop.loops.scan.api import scan_of
from fiveloop.state import Ref

X = TypeVar("X")
Y = TypeVar("Y")
Reduction = Literal["mean", "sum", "max", "min", "stack"]
_REDUCTIONS = ("mean", "sum", "max", "min", "stack")


class Options(TypedDict, total=False):
    """How a batch is cut, and what becomes of the parts' results."""

    batch_argnums: int | Sequence[int]
    has_aux: bool
    reduction: Literal["mean", "sum"]
    aux_reduction: Reduction
    progress: Shown


@overload
def accumulate_grads(
    fun: Callable[Concatenate[X, P], R],
    microbatches: int,
    argnums: Literal[0] = 0,
    **options: Unpack[Options],
) -> Callable[Concatenate[X, P], tuple[R, X]]: ...
@overload
def accumulate_grads(
    fun: Callable[Concatenate[X, Y, P], R],
    microbatches: int,
    argnums: Literal[1],
    **options: Unpack[Options],
) -> Callable[Concatenate[X, Y, P], tuple[R, Y]]: ...
@overload
def accumulate_grads(
    fun: Callable[Concatenate[X, Y, P], R],
    microbatches: int,
    argnums: tuple[Literal[0], Literal[1]],
    **options: Unpack[Options],
) -> Callable[Concatenate[X, Y, P], tuple[R, tuple[X, Y]]]: ...
@overload
def accumulate_grads(
    fun: Callable[..., R],
    microbatches: int,
    argnums: int | Sequence[int],
    **options: Unpack[Options],
) -> Callable[..., tuple[R, pytree.Pytree]]: ...
@trace.boundary
def accumulate_grads(
    fun: Callable[..., Any],
    microbatches: int,
    argnums: int | Sequence[int] = 0,
    *,
    batch_argnums: int | Sequence[int] = 1,
    has_aux: bool = False,
    reduction: Literal["mean", "sum"] = "mean",
    aux_reduction: Reduction = "mean",
    progress: Shown = False,
) -> Callable[..., Any]:
    """`value_and_grad(fun)` for a batch that is split into `microbatches` equal parts, which run one after the other.

    The arguments `batch_argnums` are pytrees of arrays with the batch in the first axis; the others are the same for
    all parts. Value and gradient are the mean over the parts, or the sum, according to `reduction`: those of the
    whole batch, if `fun` takes the mean or the sum over it. Gradients are summed in place in one buffer each, half
    floats in float32. For an argument that is a Ref, the gradient is with respect to its contents, as for `grad`; all
    other Refs, passed or closed over, are read and written part after part. With `has_aux` the auxiliary results,
    arrays that `fun` returns beside its value, are reduced by `aux_reduction`, or stacked. With `progress` (True, a
    label, or a `Progress`) a bar counts the parts.

    Raises ValueError if the batch cannot be split into equal parts, and TypeError where `value_and_grad` does.

    >>> import fiveloop.numpy as fnp
    >>> def loss(w, x):
    ...     return ((w * x) ** 2).mean()
    >>> accumulate_grads(loss, 2)(3.0, fnp.arange(4.0))
    (Array(31.5, dtype=float32), Array(21., dtype=float32))
    """
    check_callable("accumulate_grads: fun", fun)
    has_aux = common.as_flag("accumulate_grads: has_aux", has_aux)
    microbatches = common.as_count("accumulate_grads: microbatches", microbatches)
    common.as_choice("accumulate_grads: reduction", reduction, _REDUCTIONS[:2])
    common.as_choice("accumulate_grads: aux_reduction", aux_reduction, _REDUCTIONS)
    how = How(progress=as_progress("accumulate_grads", progress))
    wanted = _numbers("argnums", argnums)
    batched = _numbers("batch_argnums", batch_argnums)
    _check_apart(wanted, batched, argnums, batch_argnums)
    both = value_and_grad(fun, argnums, has_aux=has_aux)
    auxiliary = f"accumulate_grads: the auxiliary result of {function_name(fun)}, at result"

    @wraps(fun)
    @trace.boundary
    def accumulated(*args: Any, **kwargs: Any) -> Any:
        _check_count(fun, (*wanted, *batched), args)
        for k in wanted:
            flatten_values(args[k], _named(fun, k))
        _check_sizes(fun, batched, args)
        parts = [_parts(fun, k, args[k], microbatches) for k in batched]
        chosen = args[wanted[0]] if isinstance(argnums, int) else tuple(args[k] for k in wanted)

        def step(i: Value, sums: Any, part: Any) -> tuple[Any, Any]:
            full = list(args)
            for k, x in zip(batched, part, strict=True):
                full[k] = x
            value, grads = both(*full, **kwargs)
            if has_aux:
                common.check_values(auxiliary, value[1], flatten_values(value[1], auxiliary)[0])
            added = pytree.tree_map(lambda s, g: s + prims.convert(g, s.dtype), sums, grads)
            return added, value

        step.__name__ = function_name(fun)
        empty = pytree.tree_map(_empty_sum, chosen)
        sums, values = scan_of(Scan("accumulate_grads", step, empty, parts, microbatches, how))
        scale = microbatches if reduction == "mean" else 1
        grads = _scaled(sums, scale, chosen)
        return _values(values, reduction, aux_reduction if has_aux else None), grads

    return accumulated


def _values(values: Any, reduction: Reduction, aux_reduction: Reduction | None) -> Any:
    """The values of all parts as one, with the auxiliary results if there are any."""
    if aux_reduction is None:
        return _reduced(reduction, values)
    value, aux = values
    return _reduced(reduction, value), pytree.tree_map(partial(_reduced, aux_reduction), aux)


def _scaled(sums: Any, scale: int, like: Any) -> Any:
    """The sums over the parts divided, each in the dtype of its argument."""
    return pytree.tree_map(
        lambda x, g: prims.convert(g / scale, x.dtype), pytree.tree_map(_as_array, like), sums
    )


def _check_apart(wanted: Sequence[int], batched: Sequence[int], argnums: Any, batch: Any) -> None:
    """The batch is not differentiated."""
    if set(wanted) & set(batched):
        raise ValueError(
            f"accumulate_grads: argnums and batch_argnums must name different arguments, got {argnums!r} and "
            f"{batch!r}"
        )


def _as_array(x: Any) -> Value:
    """An argument as an array, or as the Ref that it is."""
    value: Value = arrays.as_value(x, "accumulate_grads: an argument")
    return value


def _empty_sum(x: Any) -> Value:
    """A zero of the type in which gradients of an argument, or of what a Ref holds, are summed."""
    value = _as_array(x)
    is_half = value.dtype.kind not in "fc" or value.dtype.itemsize < 4
    return transforms.zeros_of(
        ir.ShapedArray(value.shape, np.dtype(np.float32) if is_half else value.dtype)
    )


def _reduced(how: str, x: Value) -> Value:
    """The results of all parts as one."""
    out: Value = x if how == "stack" else getattr(x, how)(axis=0)
    return out


def _named(fun: Callable[..., Any], k: int, path: pytree.KeyPath = ()) -> str:
    """What a part of an argument is called in messages."""
    argument = f"{argument_name(fun, k)}{pytree.keystr(path)}"
    return f"accumulate_grads of {function_name(fun)}: argument {argument}"


def _parts(fun: Callable[..., Any], k: int, arg: Any, microbatches: int) -> Any:
    """A batch with its parts in a new first axis."""
    leaves, tree = flatten_values(arg, _named(fun, k))
    paths = pytree.tree_flatten_with_path(arg)[0]
    parts = []
    for x, (path, _) in zip(leaves, paths, strict=True):
        if isinstance(x, Ref):
            raise TypeError(
                f"{_named(fun, k, path)} is a batch, and must be an array, got a Ref of type {x.aval}; give its "
                "contents, `ref[...]`"
            )
        if not x.ndim or x.shape[0] % microbatches:
            raise ValueError(
                f"{_named(fun, k, path)} must have a first axis that {microbatches} microbatches cut into equal parts, "
                f"got {x.aval}"
            )
        parts.append(prims.reshape(x, (microbatches, x.shape[0] // microbatches, *x.shape[1:])))
    return pytree.tree_unflatten(tree, parts)


def _check_sizes(fun: Callable[..., Any], batched: Sequence[int], args: Sequence[Any]) -> None:
    """Refuse empty batches and batches of different sizes; an array without axes is refused later."""
    sizes = {
        f"argument {argument_name(fun, k)}{pytree.keystr(path)}": np.shape(x)[0]
        for k in batched
        for path, x in pytree.tree_flatten_with_path(args[k])[0]
        if np.shape(x)
    }
    for k in batched:
        if not pytree.tree_leaves(args[k]):
            raise ValueError(
                f"{_named(fun, k)} is a batch, and must hold at least one array, got {args[k]!r}"
            )
    common.check_one_size(f"accumulate_grads of {function_name(fun)}: first axes", sizes)


def _numbers(name: str, argnums: Any) -> list[int]:
    expected = f"accumulate_grads: {name} must be positions of arguments, counted from 0"
    given = (argnums,) if hasattr(argnums, "__index__") else argnums
    try:
        numbers = [index(k) for k in given]
    except TypeError:
        raise common.wrong_type(expected, argnums) from None
    if any(k < 0 for k in numbers) or not numbers:
        raise ValueError(f"{expected}, got {argnums!r}")
    return numbers


def _check_count(fun: Callable[..., Any], numbers: Sequence[int], args: Sequence[Any]) -> None:
    if max(numbers) >= len(args):
        raise TypeError(
            f"accumulate_grads of {function_name(fun)}: expected at least {max(numbers) + 1} positional arguments, "
            f"got {len(args)}"
        )

"""`vmap`: a function of one example made a function of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from fiveloop.core.api.flatten import FlatFunction, check_callable, flatten_values, function_name
from fiveloop.core.array import Value
from fiveloop.core.errors import at_source
from fiveloop.core.pytree import broadcast_prefix, keystr, tree_flatten_with_path, tree_unflatten
from fiveloop.core.trace.tracer import current_source
from fiveloop.core.transforms.batch import batch_flat, move_batch


def vmap(
    fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, *, axis_size: int | None = None
) -> Callable[..., Any]:
    """A function that runs `fun` on each example of a batch, at once.

    `in_axes` says which axis of each argument is the batch: an int, None for an argument that all examples
    share, or a tuple of these and of pytrees that are prefixes of the arguments. Keyword arguments are batched
    along axis 0. `out_axes` says where the batch goes in the results; None for one that does not depend on it.

    >>> vmap(lambda x, y: x * y, in_axes=(0, None))(np.arange(3.0, dtype="float32"), 2.0)
    Array([0., 2., 4.], dtype=float32)
    """
    check_callable("vmap", fun)

    @wraps(fun)
    def vmap_fun(*args: Any, **kwargs: Any) -> Any:
        called = argument_naming("vmap", fun)
        values, tree = flatten_values((args, kwargs), called)
        axes = in_axes if not isinstance(in_axes, list) else tuple(in_axes)
        if isinstance(axes, tuple) and len(axes) != len(args):
            raise ValueError(
                f"vmap of {function_name(fun)}: in_axes has {len(axes)} entries for {len(args)} arguments"
                f"{at_source(current_source())}"
            )
        spec = broadcast_prefix((axes, 0), (args, kwargs), is_leaf=_is_none)
        paths = [keystr(path) for path, _ in tree_flatten_with_path((args, kwargs))[0]]
        dims = [_canonical(d, x.ndim, f"argument{path}") for d, x, path in zip(spec, values, paths, strict=True)]
        size = _batch_size(fun, values, dims, paths, axis_size)
        flat = FlatFunction(fun, tree)
        outs, out_dims = batch_flat(flat, size, values, dims, fun)
        assert flat.out_tree is not None, "unreachable: the function has run"
        skeleton = tree_unflatten(flat.out_tree, outs)
        wanted = broadcast_prefix(out_axes, skeleton, is_leaf=_is_none)
        placed = [_place(fun, x, d, w, size) for x, d, w in zip(outs, out_dims, wanted, strict=True)]
        return tree_unflatten(flat.out_tree, placed)

    return vmap_fun


def _is_none(x: object) -> bool:
    return x is None


def _canonical(dim: Any, ndim: int, what: str) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"vmap: in_axes must hold ints and None, got {dim!r} for {what}{at_source(current_source())}")
    if not -ndim <= dim < ndim:
        raise ValueError(
            f"vmap: in_axes names axis {dim} of {what}, which has {ndim} axes{at_source(current_source())}"
        )
    return dim % ndim


def _batch_size(
    fun: object, values: list[Value], dims: list[int | None], paths: list[str], axis_size: int | None
) -> int:
    sizes = {f"argument{path}": x.shape[d] for x, d, path in zip(values, dims, paths, strict=True) if d is not None}
    if axis_size is not None:
        sizes["axis_size"] = axis_size
    if not sizes:
        raise ValueError(
            f"vmap of {function_name(fun)}: no argument is batched, so the size of the batch is unknown; give "
            f"axis_size or an in_axes that is not None{at_source(current_source())}"
        )
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(f"vmap of {function_name(fun)}: batch sizes differ: {shown}{at_source(current_source())}")
    return next(iter(sizes.values()))


def _place(fun: object, x: Value, dim: int | None, wanted: Any, size: int) -> Value:
    if wanted is None:
        if dim is not None:
            raise ValueError(
                f"vmap of {function_name(fun)}: out_axes is None for a result that depends on the batch"
                f"{at_source(current_source())}"
            )
        return x
    if not isinstance(wanted, int):
        raise TypeError(f"vmap: out_axes must hold ints and None, got {wanted!r}{at_source(current_source())}")
    ndim = x.ndim + (dim is None)
    if not -ndim <= wanted < ndim:
        raise ValueError(f"vmap: out_axes names axis {wanted} of a result with {ndim} axes{at_source(current_source())}")
    return move_batch(x, size, dim, wanted % ndim)

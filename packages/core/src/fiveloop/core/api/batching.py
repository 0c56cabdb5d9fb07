"""`vmap`: batches a function over an axis of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any

from fiveloop.core import ad, ir, pytree, trace, transforms
from fiveloop.core.api import flatten
from fiveloop.core.api.flat_function import IS_GIVEN, IS_PART, FlatFunction
from fiveloop.core.arrays import Value
from fiveloop.core.index import access
from fiveloop.core.util import P, R


@trace.boundary
def vmap(
    fun: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable = None,
    axis_size: int | None = None,
) -> Callable[P, R]:
    """A function that runs `fun` on each example of a batch, at once.

    `in_axes` says which axis of each argument is the batch: an int, None for an argument that all examples share, or a
    tuple of these and of pytrees that are prefixes of the arguments. Keyword arguments are batched along axis 0.
    `out_axes` says where the batch goes in the results; None for one that does not depend on it. With an `axis_name`,
    the examples can communicate: `psum(x, axis_name)` is the sum over all of them.

    Raises ValueError if the batches differ in size, if an argument has no such axis, if no argument is batched, or if a
    result with `out_axes` None depends on the batch.

    >>> vmap(lambda x, y: x * y, in_axes=(0, None))(np.arange(3.0, dtype="float32"), 2.0)
    Array([0., 2., 4.], dtype=float32)
    """
    flatten.check_callable("vmap", fun)
    _check_name(fun, axis_name)

    @wraps(fun)
    @trace.guarded
    def vmap_fun(*args: P.args, **kwargs: P.kwargs) -> R:
        called = flatten.argument_naming("vmap", fun)
        values, tree = flatten.flatten_values((args, kwargs), called)
        axes = in_axes if not isinstance(in_axes, list) else tuple(in_axes)
        if isinstance(axes, tuple) and len(axes) != len(args):
            raise ValueError(
                f"vmap of {flatten.function_name(fun)}: in_axes has {len(axes)} entries for {len(args)} arguments"
            )
        count = tree.children()[0].num_leaves
        spec = _axes_of_leaves(fun, "in_axes", axes, args, count)
        spec += [0] * (len(values) - len(spec))
        name = flatten.leaf_naming((args, kwargs), called)
        pairs = zip(spec, values, strict=True)
        dims = [_canonical(d, x.aval, name, k) for k, (d, x) in enumerate(pairs)]
        size = _batch_size(fun, values, dims, name, axis_size)
        flatten.check_mutable((args, kwargs), values, called)
        borrowed = {
            k: (x, flatten.stand_in(x[...], x.aval))
            for k, (x, d) in enumerate(zip(values, dims, strict=True))
            if isinstance(x, access.View) and d is not None
        }
        values = [borrowed[k][1].value if k in borrowed else x for k, x in enumerate(values)]
        flat = FlatFunction(fun, tree)
        axis = None if axis_name is None else trace.new_axis(axis_name, size)
        batched = transforms.batch_flat(flat, size, values, dims, fun, axis, for_rule=False)
        outs, out_dims = batched
        _check_made(flat, outs, out_dims, values)
        for lender, standing in borrowed.values():
            if standing.is_changed:
                lender[...] = standing.value[...]
        assert flat.out_tree is not None, "unreachable: the function has run"
        skeleton = pytree.tree_unflatten(flat.out_tree, outs)
        wanted = _axes_of_leaves(fun, "out_axes", out_axes, skeleton, len(outs))
        placed = [
            _place(fun, x, d, w, size) for x, d, w in zip(outs, out_dims, wanted, strict=True)
        ]
        result: R = pytree.tree_unflatten(flat.out_tree, placed)
        return result

    return vmap_fun


def _check_name(fun: object, axis_name: Any) -> None:
    """One name; several are given to several vmaps, one inside the other."""
    if isinstance(axis_name, (int, tuple, list)) or not isinstance(axis_name, Hashable):
        raise TypeError(
            f"vmap of {flatten.function_name(fun)}: axis_name must be one name, such as 'i', got {axis_name!r}"
        )


def _axes_of_leaves(fun: object, what: str, axes: Any, tree: Any, count: int) -> list[Any]:
    """The axis of each of the `count` leaves of a tree."""
    if type(axes) is int:
        return [axes] * count
    try:
        return pytree.broadcast_prefix(axes, tree, is_leaf=lambda x: x is None)
    except ValueError as error:
        where = str(error).removeprefix("the tree does not fit")
        raise ValueError(
            f"vmap of {flatten.function_name(fun)}: {what} must be a prefix of the tree that it "
            f"is for, which differs{where}"
        ) from None


def _canonical(dim: Any, aval: ir.Aval, name: Callable[[int], str], k: int) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"{name(k)}: in_axes must hold ints and None, got {dim!r}")
    ndim = aval.ndim
    if not -ndim <= dim < ndim:
        raise ValueError(
            f"{name(k)}: in_axes says that its axis {dim} is the batch, but it is {aval}"
        )
    return dim % ndim


def _batch_size(
    fun: object,
    values: list[Value],
    dims: list[int | None],
    name: Callable[[int], str],
    axis_size: int | None,
) -> int:
    pairs = enumerate(zip(values, dims, strict=True))
    sizes = {k: x.shape[d] for k, (x, d) in pairs if d is not None}
    found = {*sizes.values()} if axis_size is None else {axis_size, *sizes.values()}
    if not found:
        raise ValueError(
            f"vmap of {flatten.function_name(fun)}: no argument is batched, so the size of the batch is unknown; give "
            f"axis_size or an in_axes that is not None"
        )
    if len(found) > 1:
        named = {name(k).split(": ", 1)[1]: size for k, size in sizes.items()}
        if axis_size is not None:
            named["axis_size"] = axis_size
        shown = ", ".join(f"{name} has {size}" for name, size in named.items())
        raise ValueError(
            f"vmap of {flatten.function_name(fun)}: expected batches of one size, got: {shown}"
        )
    return found.pop()


def _check_made(flat: FlatFunction, outs: ad.Values, dims: ad.BatchAxes, values: ad.Values) -> None:
    """Raise if the function returns a mutable value that it has not made: each that it makes has a batch axis."""
    for k, (x, d) in enumerate(zip(outs, dims, strict=True)):
        if x.aval.accumulates and (d is None or any(x is y for y in values)):
            raise flat.returned(k, x, IS_PART if isinstance(x, access.View) else IS_GIVEN)


def _place(fun: object, x: Value, dim: int | None, wanted: Any, size: int) -> Value:
    if wanted is None:
        if isinstance(dim, transforms.Same) and size:
            return flatten.as_result(x[(slice(None),) * dim + (0,)])
        if dim is not None:
            raise ValueError(
                f"vmap of {flatten.function_name(fun)}: out_axes is None for a result that depends on the batch"
            )
        return flatten.as_result(x)
    if not isinstance(wanted, int):
        raise TypeError(
            f"vmap of {flatten.function_name(fun)}: out_axes must hold ints and None, got {wanted!r}"
        )
    ndim = x.ndim + (dim is None)
    if not -ndim <= wanted < ndim:
        raise ValueError(
            f"vmap of {flatten.function_name(fun)}: out_axes names axis {wanted} of a result with {ndim} axes"
        )
    wanted %= ndim
    if x.aval.accumulates:
        if dim == wanted:
            return x
        return flatten.holding(transforms.move_batch(x[...], size, dim, wanted), x.aval)
    return transforms.move_batch(x, size, dim, wanted)

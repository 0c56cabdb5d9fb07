"""The called function: a Python function with its static arguments, and the check of its results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fiveloop.core import TreeDef, errors, ir, pytree, trace
from fiveloop.core.dataclass import dataclass, field

HostArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Results:
    """What a function must give: a tree of arrays of these types; without a tree, anything, which is ignored."""

    what: str
    avals: tuple[ir.ShapedArray, ...] = ()
    tree: TreeDef | None = None
    source: ir.Source | None = None

    def leaves(self, out: Any, lead: tuple[int, ...]) -> list[HostArray]:
        """The arrays of a result, of which each is a stack if there are leading axes; TypeError if it does not fit."""
        if self.tree is None:
            return []
        found, tree = pytree.tree_flatten(out)
        if tree != self.tree:
            raise TypeError(
                f"{self.what}: expected a result of the structure {self.tree}, got {tree}; return what "
                f"result_shape_dtypes describes{errors.at_source(self.source)}"
            )
        return [self._leaf(x, k, lead) for k, x in enumerate(found)]

    def _leaf(self, x: Any, k: int, lead: tuple[int, ...]) -> HostArray:
        shape, dtype = (*lead, *self.avals[k].shape), self.avals[k].dtype
        if type(x) in _RANKS and shape == () and _RANKS[type(x)] <= _rank(dtype):
            return np.asarray(x, dtype)
        array = np.asarray(x)
        if array.shape != shape or array.dtype != dtype:
            path = pytree.leaf_paths(self.tree)[k] if self.tree is not None else ""
            raise TypeError(
                f"{self.what}: expected {ir.ShapedArray(shape, dtype)} as result{path}, got "
                f"{_shown(x, array)}; convert "
                f"it in the function, or correct result_shape_dtypes{errors.at_source(self.source)}"
            )
        return array


_RANKS: dict[type, int] = {bool: 0, int: 1, float: 2, complex: 3}
"""Python's numbers have no width: each fits a dtype of its kind, or of a wider one."""


def _rank(dtype: np.dtype[Any]) -> int:
    return {"b": 0, "i": 1, "u": 1, "c": 3}.get(dtype.kind, 2)


def _shown(x: Any, array: HostArray) -> str:
    if array.dtype.kind in "OSUMm":
        return f"{x!r} of type {type(x).__name__}"
    return str(ir.ShapedArray(array.shape, array.dtype))


@dataclass(frozen=True)
class HostCall:
    """A call of a function on arrays and on leaves that are none; equal calls do the same with equal arrays.

    `constants` has, in the order of the leaves of `(args, kwargs)`, the leaf that is no array, or `ARRAY`.
    """

    key: Hashable
    results: Results
    fun: Callable[..., Any] = field(compare=False)
    tree: TreeDef = field(compare=False)
    constants: tuple[Any, ...] = field(compare=False)

    def __call__(self, arrays: Sequence[HostArray], lead: tuple[int, ...] = ()) -> list[HostArray]:
        """Call the function, on arrays of its own."""
        args, kwargs = self.arguments(arrays)
        with trace.ensure_compile_time_eval():
            out = self.fun(*args, **kwargs)
            return self.results.leaves(out, lead)

    def arguments(self, arrays: Sequence[HostArray]) -> Any:
        """The positional and the named arguments; the arrays are copied, since their memory is only lent."""
        given = iter(arrays)
        leaves = [np.array(next(given)) if x is ARRAY else x for x in self.constants]
        return pytree.tree_unflatten(self.tree, leaves)

    def __str__(self) -> str:
        return getattr(self.fun, "__name__", None) or type(self.fun).__name__


class _Array:
    """Where an array goes among the arguments."""

    def __repr__(self) -> str:
        return "ARRAY"


ARRAY = _Array()


def call_key(fun: Callable[..., Any], tree: TreeDef, constants: Sequence[Any]) -> Hashable:
    """A key that is equal only for equivalent calls."""
    return (_own_key(fun), tree, *[_constant_key(x) for x in constants])


def _own_key(x: Any) -> Hashable:
    try:
        hash(x)
    except TypeError:
        return object()  # equal to nothing else
    return x  # type: ignore[no-any-return]  # it has a hash


def _constant_key(x: Any) -> Hashable:
    """Numbers that are equal may print differently, as 1 and True do, or 0.0 and -0.0."""
    return (type(x), repr(x)) if type(x) in (*_RANKS, str, bytes, _Array) else object()

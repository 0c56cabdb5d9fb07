"""The list of the methods of values, shared by arrays, traced values and Refs (which refuse them)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from fiveloop.core import errors, ir, rules

if TYPE_CHECKING:
    from fiveloop.core.arrays.array import ArrayLike, Value

METHODS: dict[str, Callable[..., Value]] = {}
"""The functions behind the methods below, filled in by `methods` above the primitives."""


class InplaceNote(Protocol):
    """A mark that reading a Ref leaves on it and on the value read, so that `ref[i] += x` is one accumulation.

    `handed_on` tells what is left of it when the value goes into another program, which may change it.
    """

    def inplace_add(self, value: Value, x: Any, /) -> Value: ...

    def handed_on(self, value: Value, /) -> InplaceNote | None: ...


class Update(Protocol):
    """A method of a place, as of `x.at[i]`: the array with a value combined into it there."""

    def __call__(
        self,
        v: ArrayLike,
        *,
        mode: str | None = None,
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Value: ...


class Read(Protocol):
    """The method `get` of a place."""

    def __call__(
        self, *, mode: str | None = None, fill_value: ArrayLike | None = None, **flags: bool
    ) -> Value: ...


class Apply(Protocol):
    """The method `apply` of a place."""

    def __call__(self, fun: Callable[[Value], ArrayLike], **options: Any) -> Value: ...


class Place(Protocol):
    """A place of an array: `x.at[i]`."""

    set: Update
    add: Update
    subtract: Update
    multiply: Update
    mul: Update
    divide: Update
    power: Update
    max: Update
    min: Update
    get: Read
    apply: Apply


class Places(Protocol):
    """The places of an array: `x.at`."""

    def __getitem__(self, index: Any) -> Place: ...


_TOLD = {
    "fill": "arrays are immutable: use `full_like(x, v)` of fiveloop.numpy, or `ref[...] = v` on a Ref",
    "put itemset setfield": "arrays are immutable: use `x.at[i].set(v)`",
    "resize": "arrays are immutable: use `x.reshape(shape)`, or `pad` of fiveloop.numpy",
    "setflags flags": "arrays are immutable, all of them",
    "partition": "use `x.sort()`, or `top_k` of fiveloop.numpy",
    "argpartition": "use `x.argsort()`, or `top_k` of fiveloop.numpy",
    "searchsorted": "use `searchsorted` of fiveloop.numpy",
    "compress": "use `x[mask]` outside of traced functions, or `where` of fiveloop.numpy",
    "choose": "use `select` or `where` of fiveloop.numpy",
    "flat": "use `x.ravel()`",
    "strides": "the layout in memory is the compiler's; `np.asarray(x).strides` is that of a copy",
    "base": "an array is a view of nothing",
    "data ctypes byteswap getfield": "use `np.asarray(x)`",
    "tobytes": "use `np.asarray(x).tobytes()`",
    "tofile": "use `np.asarray(x).tofile(file)`",
    "dump dumps": "use the pickle module",
    "device to_device": "all arrays are on the default device",
    "ptp": "use `ptp` of fiveloop.numpy",
}
ABSENT = {name: told for names, told in _TOLD.items() for name in names.split()}
"""What NumPy's arrays have and ours do not, and what to do instead."""


class Methods:
    """NumPy's methods, except methods that write in place. None of them changes its value."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker is to see what exists

        def __getattr__(self, name: str) -> Any:
            if name == "_a":  # of an array that is computed only if it is used
                self._a = self._note.computed().buffer
                return self._a
            if name[0] == "_":  # which Python and NumPy ask for, and do without
                raise AttributeError(name)
            if name in (methods := rules.type_rules(self.aval).methods):
                return partial(methods[name], self)
            if name in ABSENT:
                raise AttributeError(
                    (
                        f"a value of type {self.aval} has no attribute {name!r}: {ABSENT[name]}"
                        f"{errors.at_source(ir.user_source())}"
                    ),
                    name=name,
                    obj=self,
                )
            raise AttributeError(
                f"a value of type {self.aval} has no attribute {name!r}{errors.at_source(ir.user_source())}",
                name=name,
                obj=self,
            )

    @property
    def T(self) -> Value:
        """The transpose: all axes in reverse order."""
        return METHODS["transpose"](self)

    @property
    def mT(self) -> Value:
        """The matrix transpose: the last two axes swapped."""
        return METHODS["matrix_transpose"](self)

    @property
    def real(self) -> Value:
        """The real parts; numbers that are not complex are their own."""
        return METHODS["real"](self)

    @property
    def imag(self) -> Value:
        """The imaginary parts; zeros for numbers that are not complex."""
        return METHODS["imag"](self)

    def conj(self) -> Value:
        """The complex conjugates; numbers that are not complex are their own."""
        return METHODS["conj"](self)

    def conjugate(self) -> Value:
        """The complex conjugates, as `conj`."""
        return METHODS["conj"](self)

    def astype(self, dtype: Any, *, copy: bool = True) -> Value:
        """The same elements in another dtype; `copy` means nothing, as arrays are immutable."""
        return METHODS["astype"](self, dtype)

    def view(self, dtype: Any) -> Value:
        """The same bits read as another dtype; the last axis takes the change of width."""
        return METHODS["view"](self, dtype)

    def copy(self) -> Value:
        """The array itself: it is immutable."""
        return METHODS["copy"](self)

    def reshape(self, *shape: Any) -> Value:
        """The same elements in another shape; one dim may be -1."""
        return METHODS["reshape"](self, _one_sequence(shape))

    def ravel(self) -> Value:
        """All elements in one axis."""
        return METHODS["reshape"](self, (-1,))

    def flatten(self) -> Value:
        """All elements in one axis, as a new array."""
        return METHODS["flatten"](self, (-1,))

    def transpose(self, *axes: Any) -> Value:
        """The axes in another order; reversed if none is given."""
        return METHODS["transpose"](self, None if axes in ((), (None,)) else _one_sequence(axes))

    def swapaxes(self, axis1: int, axis2: int) -> Value:
        """Two axes exchanged."""
        return METHODS["swapaxes"](self, axis1, axis2)

    def squeeze(self, axis: Any = None) -> Value:
        """The array without axes of size 1: without these, or all of them."""
        return METHODS["squeeze"](self, axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
        """The elements with equal indices along two axes, `offset` apart; they become the last axis."""
        return METHODS["diagonal"](self, offset, axis1, axis2)

    def repeat(self, repeats: Any, axis: int | None = None) -> Value:
        """Each element repeated; flattened if `axis` is None."""
        return METHODS["repeat"](self, repeats, axis)

    def take(
        self, indices: ArrayLike, axis: int | None = None, out: None = None, mode: str = "raise"
    ) -> Value:
        """The elements at indices along an axis, or of all, flattened; indices are as in `x[i]`."""
        return _without_out("take", out)(self, indices, axis, mode=mode)

    def nonzero(self) -> tuple[Value, ...]:
        """The indices of the elements that are not zero, one array per axis; the elements must be known."""
        return METHODS["nonzero"](self)  # type: ignore[return-value]  # the one that gives several

    def sort(
        self, axis: int | None = -1, *, stable: bool = True, descending: bool = False
    ) -> Value:
        """The elements in order along an axis, as a new array: NumPy's method sorts in place."""
        return METHODS["sort"](self, axis, stable=stable, descending=descending)

    def argsort(
        self, axis: int | None = -1, *, stable: bool = True, descending: bool = False
    ) -> Value:
        """The indices that put the elements in order along an axis."""
        return METHODS["argsort"](self, axis, stable=stable, descending=descending)

    def clip(
        self, min: ArrayLike | None = None, max: ArrayLike | None = None, out: None = None
    ) -> Value:
        """Each element limited to the range from `min` to `max`; None is no bound."""
        return _without_out("clip", out)(self, min, max)

    def round(self, decimals: int = 0, out: None = None) -> Value:
        """Each element rounded to `decimals` places, a half to the even digit."""
        return _without_out("round", out)(self, decimals)

    def dot(self, other: ArrayLike) -> Value:
        """Products summed over the last axis and the last but one of `other`."""
        return METHODS["dot"](self, other)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
        """The sum of a diagonal of two axes."""
        return METHODS["trace"](self, offset, axis1, axis2)

    def sum(
        self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False
    ) -> Value:
        """The sum over `axis`, or over all."""
        return _without_out("sum", out)(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(
        self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False
    ) -> Value:
        """The product over `axis`, or over all."""
        return _without_out("prod", out)(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(
        self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False
    ) -> Value:
        """The mean over `axis`, or over all."""
        return _without_out("mean", out)(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        *,
        keepdims: bool = False,
    ) -> Value:
        """The variance over `axis`, or over all: squares of distances from the mean over (count - `ddof`)."""
        return _without_out("var", out)(self, axis, dtype=dtype, ddof=ddof, keepdims=keepdims)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        *,
        keepdims: bool = False,
    ) -> Value:
        """The standard deviation over `axis`, or over all: the root of the variance."""
        return _without_out("std", out)(self, axis, dtype=dtype, ddof=ddof, keepdims=keepdims)

    def max(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Value:
        """The greatest element over `axis`, or over all."""
        return _without_out("max", out)(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Value:
        """The least element over `axis`, or over all."""
        return _without_out("min", out)(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Value:
        """Whether all elements over `axis` are true; a number is true if it is not zero."""
        return _without_out("all", out)(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Value:
        """Whether any element over `axis` is true; a number is true if it is not zero."""
        return _without_out("any", out)(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Value:
        """The index of the first greatest element."""
        return _without_out("argmax", out)(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Value:
        """The index of the first least element."""
        return _without_out("argmin", out)(self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Value:
        """The sums of all elements up to each position along `axis`; of the flattened array if that is None."""
        return _without_out("cumsum", out)(self, axis, dtype=dtype)

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Value:
        """The products of all elements up to each position along `axis`; of the flattened array if that is None."""
        return _without_out("cumprod", out)(self, axis, dtype=dtype)

    @property
    def at(self) -> Places:
        """Functional updates: `x.at[i].set(v)`, `.add`, `.multiply`, `.max`, ..., and `.get`."""
        found: Any = METHODS["at"](self)
        return found  # type: ignore[no-any-return]  # the one method that gives no value


def _one_sequence(args: tuple[Any, ...]) -> Sequence[Any]:
    """Arguments given separately, or as a sequence."""
    return args[0] if len(args) == 1 and isinstance(args[0], Sequence) else args


def _without_out(fun: str, out: object) -> Callable[..., Value]:
    """The function behind a method that takes no `out`, as NumPy's does."""
    if out is not None:
        raise TypeError(
            f"{fun}: expected no `out`, got one of type {type(out).__name__}; results are new arrays, to be copied "
            f"by the caller: `out[...] = x.{fun}()`{errors.at_source(ir.user_source())}"
        )
    return METHODS[fun]

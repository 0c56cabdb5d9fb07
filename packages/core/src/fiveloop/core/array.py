"""Values: what users compute with. `Value` has the operators, `Array` holds a buffer, `Scalar` a host number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from fiveloop.core.backend import client
from fiveloop.core.backend.call import register_array_class
from fiveloop.core.dims import Shape
from fiveloop.core.errors import TracerError, at_source
from fiveloop.core.ir.avals import Aval, ShapedArray, short_dtype
from fiveloop.core.ir.source import user_source
from fiveloop.core.rules import type_rules

OPS: dict[str, Callable[..., Any]] = {}
"""The functions behind operators and methods, filled in by `operators` above the primitives."""

_INT32, _INT64 = np.iinfo(np.int32), np.iinfo(np.int64)


class InplaceNote(Protocol):
    """A mark that reading a Ref leaves on the value read, so that `ref[i] += x` is one accumulation."""

    def inplace_add(self, value: Value, x: Any, /) -> Value: ...


class Value:
    """Anything that a program computes with: an array, a tracer, a Ref. It has NumPy's operators and methods."""

    __slots__ = ("_note",)
    __array_ufunc__: ClassVar[None] = None
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # elements, not identity, are compared
    _note: InplaceNote | None

    @property
    def aval(self) -> Aval:
        """The type of this value."""
        raise TypeError(f"{type(self).__name__} has no type")

    @property
    def shape(self) -> Shape:
        """The size along each axis."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.aval.shape, dtype=np.int64))

    @property
    def weak_type(self) -> bool:
        """Whether the dtype yields to that of other operands, as a Python scalar's does."""
        return self.aval.weak_type

    def __len__(self) -> int:
        if not self.aval.shape:
            raise TypeError(
                f"len: expected a value with axes, got {self.aval}{at_source(user_source())}"
            )
        return self.aval.shape[0]

    def __iter__(self) -> Iterator[Value]:
        if not self.aval.shape:
            raise TypeError(
                f"iter: expected a value with axes, got {self.aval}{at_source(user_source())}"
            )
        return iter(OPS["unstack"](self))

    def __getitem__(self, index: Any) -> Value:
        return type_rules(self.aval).getitem(self, index)  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, x: Any) -> None:
        type_rules(self.aval).setitem(self, index, x)

    def __add__(self, other: Any) -> Value:
        return OPS["add"](self, other)  # type: ignore[no-any-return]

    def __radd__(self, other: Any) -> Value:
        return OPS["add"](other, self)  # type: ignore[no-any-return]

    def __iadd__(self, other: Any) -> Value:
        if self._note is not None:
            return self._note.inplace_add(self, other)
        return OPS["add"](self, other)  # type: ignore[no-any-return]

    def __sub__(self, other: Any) -> Value:
        return OPS["subtract"](self, other)  # type: ignore[no-any-return]

    def __rsub__(self, other: Any) -> Value:
        return OPS["subtract"](other, self)  # type: ignore[no-any-return]

    def __mul__(self, other: Any) -> Value:
        return OPS["multiply"](self, other)  # type: ignore[no-any-return]

    def __rmul__(self, other: Any) -> Value:
        return OPS["multiply"](other, self)  # type: ignore[no-any-return]

    def __truediv__(self, other: Any) -> Value:
        return OPS["divide"](self, other)  # type: ignore[no-any-return]

    def __rtruediv__(self, other: Any) -> Value:
        return OPS["divide"](other, self)  # type: ignore[no-any-return]

    def __floordiv__(self, other: Any) -> Value:
        return OPS["floor_divide"](self, other)  # type: ignore[no-any-return]

    def __rfloordiv__(self, other: Any) -> Value:
        return OPS["floor_divide"](other, self)  # type: ignore[no-any-return]

    def __mod__(self, other: Any) -> Value:
        return OPS["remainder"](self, other)  # type: ignore[no-any-return]

    def __rmod__(self, other: Any) -> Value:
        return OPS["remainder"](other, self)  # type: ignore[no-any-return]

    def __pow__(self, other: Any) -> Value:
        return OPS["power"](self, other)  # type: ignore[no-any-return]

    def __rpow__(self, other: Any) -> Value:
        return OPS["power"](other, self)  # type: ignore[no-any-return]

    def __matmul__(self, other: Any) -> Value:
        return OPS["matmul"](self, other)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Any) -> Value:
        return OPS["matmul"](other, self)  # type: ignore[no-any-return]

    def __and__(self, other: Any) -> Value:
        return OPS["bitwise_and"](self, other)  # type: ignore[no-any-return]

    def __rand__(self, other: Any) -> Value:
        return OPS["bitwise_and"](other, self)  # type: ignore[no-any-return]

    def __or__(self, other: Any) -> Value:
        return OPS["bitwise_or"](self, other)  # type: ignore[no-any-return]

    def __ror__(self, other: Any) -> Value:
        return OPS["bitwise_or"](other, self)  # type: ignore[no-any-return]

    def __xor__(self, other: Any) -> Value:
        return OPS["bitwise_xor"](self, other)  # type: ignore[no-any-return]

    def __rxor__(self, other: Any) -> Value:
        return OPS["bitwise_xor"](other, self)  # type: ignore[no-any-return]

    def __lshift__(self, other: Any) -> Value:
        return OPS["left_shift"](self, other)  # type: ignore[no-any-return]

    def __rlshift__(self, other: Any) -> Value:
        return OPS["left_shift"](other, self)  # type: ignore[no-any-return]

    def __rshift__(self, other: Any) -> Value:
        return OPS["right_shift"](self, other)  # type: ignore[no-any-return]

    def __rrshift__(self, other: Any) -> Value:
        return OPS["right_shift"](other, self)  # type: ignore[no-any-return]

    def __lt__(self, other: Any) -> Value:
        return OPS["less"](self, other)  # type: ignore[no-any-return]

    def __le__(self, other: Any) -> Value:
        return OPS["less_equal"](self, other)  # type: ignore[no-any-return]

    def __gt__(self, other: Any) -> Value:
        return OPS["greater"](self, other)  # type: ignore[no-any-return]

    def __ge__(self, other: Any) -> Value:
        return OPS["greater_equal"](self, other)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return OPS["equal"](self, other)  # type: ignore[no-any-return]

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return OPS["not_equal"](self, other)  # type: ignore[no-any-return]

    def __neg__(self) -> Value:
        return OPS["negative"](self)  # type: ignore[no-any-return]

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return OPS["abs"](self)  # type: ignore[no-any-return]

    def __invert__(self) -> Value:
        return OPS["bitwise_invert"](self)  # type: ignore[no-any-return]

    @property
    def T(self) -> Value:
        """The transpose: all axes in reverse order."""
        return OPS["transpose"](self)  # type: ignore[no-any-return]

    @property
    def mT(self) -> Value:
        """The matrix transpose: the last two axes swapped."""
        return OPS["matrix_transpose"](self)  # type: ignore[no-any-return]

    def astype(self, dtype: Any) -> Value:
        """The same elements in another dtype."""
        return OPS["astype"](self, dtype)  # type: ignore[no-any-return]

    def reshape(self, *shape: Any) -> Value:
        """The same elements in another shape; one dim may be -1."""
        return OPS["reshape"](self, _one_sequence(shape))  # type: ignore[no-any-return]

    def transpose(self, *axes: Any) -> Value:
        """The axes in another order; reversed if none is given."""
        return OPS["transpose"](self, _one_sequence(axes) or None)  # type: ignore[no-any-return]

    def ravel(self) -> Value:
        """All elements in one axis."""
        return OPS["reshape"](self, (-1,))  # type: ignore[no-any-return]

    def sum(
        self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False
    ) -> Value:
        """The sum over `axis`, or over all."""
        return OPS["sum"](self, axis=axis, dtype=dtype, keepdims=keepdims)  # type: ignore[no-any-return]

    def prod(
        self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False
    ) -> Value:
        """The product over `axis`, or over all."""
        return OPS["prod"](self, axis=axis, dtype=dtype, keepdims=keepdims)  # type: ignore[no-any-return]

    def mean(
        self, axis: Any = None, dtype: Any = None, out: None = None, *, keepdims: bool = False
    ) -> Value:
        """The mean over `axis`, or over all."""
        return OPS["mean"](self, axis=axis, dtype=dtype, keepdims=keepdims)  # type: ignore[no-any-return]

    def max(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Value:
        """The greatest element over `axis`, or over all."""
        return OPS["max"](self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def min(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Value:
        """The least element over `axis`, or over all."""
        return OPS["min"](self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def all(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Value:
        """Whether all elements over `axis` are true."""
        return OPS["all"](self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def any(self, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Value:
        """Whether any element over `axis` is true."""
        return OPS["any"](self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def argmax(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Value:
        """The index of the first greatest element."""
        return OPS["argmax"](self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def argmin(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Value:
        """The index of the first least element."""
        return OPS["argmin"](self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    @property
    def at(self) -> Any:
        """Functional updates: `x.at[i].set(v)`, `.add`, `.multiply`, `.max`, `.min`, `.get`."""
        return OPS["at"](self)

    # Values whose elements are known override these, and traced ones say what to do instead.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise TypeError(f"a value of type {self.aval} is no NumPy array")

    def __float__(self) -> float:
        raise TypeError(f"a value of type {self.aval} is no Python number")

    def __int__(self) -> int:
        raise TypeError(f"a value of type {self.aval} is no Python number")

    def item(self) -> Any:
        """The only element as a Python scalar."""
        raise TypeError(f"a value of type {self.aval} is no Python number")


def _one_sequence(args: tuple[Any, ...]) -> Sequence[Any]:
    """Arguments that were given one by one, or as one sequence."""
    return args[0] if len(args) == 1 and isinstance(args[0], Sequence) else args


ArrayLike: TypeAlias = "Value | np.ndarray[Any, Any] | np.generic | bool | int | float | complex"


@runtime_checkable
class HasJaxArray(Protocol):
    """An object that gives an array of its own accord."""

    def __jax_array__(self) -> Any: ...


class Concrete(Value):
    """A value whose elements are known now."""

    __slots__ = ()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array, read-only."""
        raise TypeError(f"{type(self).__name__} has no elements")

    def item(self) -> Any:
        """The only element as a Python scalar."""
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        out = self.numpy()
        converted = out if dtype is None else out.astype(dtype, copy=False)
        return converted.copy() if copy else converted

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __complex__(self) -> complex:
        return complex(self.numpy())

    def __index__(self) -> int:
        host = self.numpy()
        if host.ndim or host.dtype.kind not in "iu":
            raise TypeError(f"only an integer without axes can be an index, got {self.aval}")
        return int(host)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else format(str(self), spec)


class Array(Concrete):
    """An immutable array on a device; its buffer is PJRT's, the class is fiveloop's."""

    __slots__ = ("__weakref__", "_a")

    def __init__(self, buffer: client.Buffer) -> None:
        self._a = buffer
        self._note = None

    @property
    def buffer(self) -> client.Buffer:
        """The PJRT buffer."""
        return self._a

    @property
    def aval(self) -> Aval:
        return self._a.aval  # type: ignore[no-any-return]  # the buffer gives back the aval that it was made with

    def numpy(self) -> np.ndarray[Any, Any]:
        return client.to_numpy(self._a)

    def block_until_ready(self) -> Array:
        """Wait until the elements have been computed, and raise what went wrong."""
        self._a.block_until_ready()
        return self

    def __dlpack__(self, **kwargs: Any) -> Any:
        return client.to_dlpack(self._a)

    def __dlpack_device__(self) -> tuple[int, int]:
        return client.dlpack_device(self._a)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (np.array(self.numpy()), self.weak_type)

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        body = np.array2string(
            np.asarray(self.numpy()), separator=", ", prefix="Array(", threshold=200
        )
        return f"Array({body}, dtype={self.dtype.name}{weak})"

    def __str__(self) -> str:
        return str(self.numpy())


register_array_class(Array)


class Scalar(Concrete):
    """A number on the host, as Python and NumPy scalars become when they meet arrays."""

    __slots__ = ("_aval", "_on_device", "host")

    def __init__(self, host: np.ndarray[Any, Any], weak_type: bool = False) -> None:
        self.host = host
        self._aval = ShapedArray((), host.dtype, weak_type)
        self._on_device: Array | None = None
        self._note = None

    @property
    def aval(self) -> Aval:
        return self._aval

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.host

    def on_device(self) -> Array:
        """The number as an array, made once."""
        if self._on_device is None:
            self._on_device = device_put(self.host, self.weak_type)
        return self._on_device

    def __repr__(self) -> str:
        return f"Scalar({self.host.item()}, dtype={short_dtype(self.host.dtype)})"

    def __str__(self) -> str:
        return str(self.host.item())


def _unpickle(host: np.ndarray[Any, Any], weak_type: bool) -> Array:
    return device_put(host, weak_type)


def device_put(x: np.ndarray[Any, Any], weak_type: bool = False) -> Array:
    """A NumPy array's copy on the device, with the same shape and dtype."""
    return Array(client.put(x, ShapedArray(x.shape, x.dtype, weak_type)))


def python_scalar(x: bool | int | float | complex) -> Scalar:
    """A Python scalar as a weak value: bool, int32 (int64 if it must be), float32 or complex64."""
    if isinstance(x, bool):
        return Scalar(np.asarray(x, np.bool_))
    if isinstance(x, int):
        if not _INT64.min <= x <= _INT64.max:
            raise OverflowError(f"the integer {x} does not fit int64{at_source(user_source())}")
        fits = _INT32.min <= x <= _INT32.max
        return Scalar(np.asarray(x, np.int32 if fits else np.int64), weak_type=True)
    return Scalar(
        np.asarray(x, np.complex64 if isinstance(x, complex) else np.float32), weak_type=True
    )


def as_value(x: Any, what: str = "argument") -> Value:
    """Anything that stands for an array, as a value; TypeError names `what` for anything else."""
    if isinstance(x, Value):
        return x
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return python_scalar(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return _from_numpy(np.asarray(x), what)
    if isinstance(x, HasJaxArray):
        return as_value(x.__jax_array__(), what)
    if hasattr(x, "__array__"):
        return _from_numpy(np.asarray(x), what)
    if hasattr(x, "__dlpack__"):
        return _from_numpy(np.from_dlpack(x), what)
    raise TypeError(
        f"{what} must be an array or a scalar, got {x!r} of type {type(x).__name__}{at_source(user_source())}"
    )


def _from_numpy(x: np.ndarray[Any, Any], what: str) -> Value:
    if (
        x.dtype.kind in "OSUMm"
        or (x.dtype.kind == "V" and x.dtype.names is not None)
        or x.dtype.char in "gG"
    ):
        raise TypeError(
            f"{what} must hold numbers of at most 64 bits a part, got a NumPy array of dtype {x.dtype}"
            f"{at_source(user_source())}"
        )
    return Scalar(x.copy()) if x.ndim == 0 else device_put(x)


def to_array(x: Value) -> Array:
    """A concrete value on the device."""
    if isinstance(x, Array):
        return x
    if isinstance(x, Scalar):
        return x.on_device()
    raise TracerError(f"expected a concrete array, got a traced value of type {x.aval}")

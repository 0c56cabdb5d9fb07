"""Values: `Value` has the operators, `Array` has a buffer, `Scalar` a host number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np

from fiveloop.core import errors, ir, rules
from fiveloop.core.arrays import methods as array_methods
from fiveloop.core.backend import call, client
from fiveloop.core.backend.hlo_builder import ELEMENT_TYPES

OPS: dict[str, Callable[..., Any]] = {}
"""The functions behind operators, filled in by `operators` above the primitives."""

OPERATORS: dict[Callable[..., Any], tuple[str, bool]] = {}
"""For each operator of values the name of the function behind it, and whether its operands change places."""

_INT32, _INT64 = np.iinfo(np.int32), np.iinfo(np.int64)


def _operator(name: str) -> Callable[[Value, Any], Value]:
    """An operator of two values, by the name of the function behind it."""

    def call(self: Value, other: Any) -> Value:
        return OPS[name](self, other)  # type: ignore[no-any-return]  # the operators give values

    OPERATORS[call] = name, False
    return call


def _operators(name: str) -> tuple[Callable[[Value, Any], Value], Callable[[Value, Any], Value]]:
    """The operator, and that of a value which comes second."""

    def reflected(self: Value, other: Any) -> Value:
        return OPS[name](other, self)  # type: ignore[no-any-return]

    OPERATORS[reflected] = name, True
    return _operator(name), reflected


def _power(self: Value, other: Any, modulo: Any = None) -> Value:
    """The operator of powers; `pow` may hand it a modulus."""
    if modulo is not None:
        raise TypeError(
            f"pow: expected no modulus for arrays, got {modulo!r}; take the remainder, `x ** y % z`"
            f"{errors.at_source(ir.user_source())}"
        )
    return OPS["power"](self, other)  # type: ignore[no-any-return]


OPERATORS[_power] = "power", False


def _unary(name: str) -> Callable[[Value], Value]:
    """An operator of one value, by the name of the function behind it."""

    def call(self: Value) -> Value:
        return OPS[name](self)  # type: ignore[no-any-return]

    OPERATORS[call] = name, False
    return call


class Value(array_methods.Methods):
    """Anything that a program computes with: an array, a tracer, a Ref. It has NumPy's operators and methods."""

    __slots__ = ("_note",)
    _note: array_methods.InplaceNote | None

    @property
    def aval(self) -> ir.Aval:
        """The type of this value."""
        raise TypeError(f"{type(self).__name__} has no type")

    @property
    def shape(self) -> ir.Shape:
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
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.aval.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.aval.dtype.itemsize

    def check_operand(self) -> None:
        """Raise TypeError if primitives do not take it."""

    @property
    def weak_type(self) -> bool:
        """Whether the dtype yields to that of other operands, as a Python scalar's does."""
        return self.aval.weak_type

    def __len__(self) -> int:
        self._require_axes("len")
        return self.aval.shape[0]

    def __iter__(self) -> Iterator[Value]:
        self._require_axes("iter")
        if self.aval.accumulates:
            raise TypeError(
                f"iter: expected an array, got {self.aval}; iterate over its contents, `for row in ref[...]`, or over "
                f"its parts, `for i in range(len(ref)): ref.at[i]`{errors.at_source(ir.user_source())}"
            )
        return iter(OPS["unstack"](self))

    def _require_axes(self, what: str) -> None:
        if not self.aval.shape:
            raise TypeError(
                f"{what}: expected a value with axes, got {self.aval}{errors.at_source(ir.user_source())}"
            )

    def __getitem__(self, index: Any) -> Value:
        return rules.type_rules(self.aval).getitem(self, index)  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, x: Any) -> None:
        rules.type_rules(self.aval).setitem(self, index, x)

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("divide")
    __floordiv__, __rfloordiv__ = _operators("floor_divide")
    __mod__, __rmod__ = _operators("remainder")
    __pow__, __rpow__ = _power, _operators("power")[1]
    __matmul__, __rmatmul__ = _operators("matmul")
    __and__, __rand__ = _operators("bitwise_and")
    __or__, __ror__ = _operators("bitwise_or")
    __xor__, __rxor__ = _operators("bitwise_xor")
    __lshift__, __rlshift__ = _operators("left_shift")
    __rshift__, __rrshift__ = _operators("right_shift")
    __lt__ = _operator("less")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater")
    __ge__ = _operator("greater_equal")
    __eq__ = _operator("equal")  # type: ignore[assignment]  # of arrays it gives an array
    __ne__ = _operator("not_equal")  # type: ignore[assignment]  # of arrays it gives an array
    __neg__, __abs__ = _unary("negative"), _unary("abs")
    __invert__ = _unary("bitwise_invert")

    def __iadd__(self, other: Any) -> Value:
        if self._note is not None:
            return self._note.inplace_add(self, other)
        if self.aval.accumulates:
            raise TypeError(
                f"`+=` on a Ref of type {self.aval} would give its name to a sum: write `ref[...] += x`, or "
                f"`ref[index] += x`{errors.at_source(ir.user_source())}"
            )
        return OPS["add"](self, other)  # type: ignore[no-any-return]

    def __pos__(self) -> Value:
        return self

    def __divmod__(self, other: Any) -> tuple[Value, Value]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Value, Value]:
        return other // self, other % self

    def __round__(self, ndigits: int | None = None) -> Value:
        return self.round(ndigits or 0)

    def __contains__(self, x: Any) -> bool:
        return bool(OPS["equal"](self, x).any())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return OPS["ufunc"](ufunc, method, inputs, kwargs)

    def __hash__(self) -> int:
        raise TypeError(
            f"a value of type {self.aval} has no hash, as its elements are what is compared; as a key use "
            f"`x.item()`, `np.asarray(x).tobytes()` or `id(x)`{errors.at_source(ir.user_source())}"
        )

    def __copy__(self) -> Self:
        if self.aval.accumulates:
            self._refuse("a copy")
        return self  # it is immutable

    def __deepcopy__(self, memo: Any) -> Self:
        return self.__copy__()

    # Values whose elements are known override these, and traced ones say what to do instead.

    def _refuse(self, what: str, advice: str = "") -> NoReturn:
        """Refuse to be a host value: this is neither an array nor traced, so it holds an array."""
        raise TypeError(
            f"expected an array to be made {what}, got {self.aval}; read a Ref first: `ref[...]`"
            f"{errors.at_source(ir.user_source())}"
        )

    def __bool__(self) -> bool:
        self._refuse(
            "a bool", "use `cond`, `where` or `while_loop` for control flow on traced values"
        )

    def __int__(self) -> int:
        self._refuse(
            "an int",
            f"sizes and bounds must be known while tracing: {errors.STATIC}; else keep it an array",
        )

    def __float__(self) -> float:
        self._refuse(
            "a float", f"keep it an array; if it must be known while tracing: {errors.STATIC}"
        )

    def __complex__(self) -> complex:
        self._refuse("a complex number", "keep it an array")

    def __index__(self) -> int:
        self._refuse(
            "an index or a size",
            f"sizes and bounds must be known while tracing: {errors.STATIC}; to index a NumPy array or a list with it, "
            "`fiveloop.numpy.asarray(table)[i]`; to slice at it, `x[ds(start, size)]`; to loop, `fori_loop`",
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        self._refuse(
            "a NumPy array",
            "use the function of fiveloop.numpy in place of NumPy's, or `x.astype(dtype)` to convert; to index a NumPy "
            "array with it, `fiveloop.numpy.asarray(table)[i]`",
        )

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(
                f"text in the format {spec!r}",
                f'use `debug_print("{{:{spec}}}", x)` of fiveloop.state, which prints when the program runs, or '
                "return it",
            )
        return str(self)

    def item(self, *index: int) -> Any:
        """The only element as a Python scalar, or that at an index."""
        self._refuse("a Python scalar", "keep it an array, or return it from the function")

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars."""
        self._refuse("a list", "keep it an array, or return it from the function")


ArrayLike: TypeAlias = "Value | np.ndarray[Any, Any] | np.generic | bool | int | float | complex"


def setter(kind: type[Value], name: str) -> Callable[[Any, Any], None]:
    """What sets an attribute of a class, without asking its `__setattr__`."""
    return vars(kind)[name].__set__  # type: ignore[no-any-return]  # of a slot, by definition


class Fixed(Value):
    """A value whose class is no name that users know: it says itself that it takes no attributes.

    That takes time: what is made often sets its own by `setter`.
    """

    __slots__ = ()

    def __setattr__(self, name: str, x: Any) -> None:
        try:
            object.__setattr__(self, name, x)
        except AttributeError:
            told = (
                "; write the contents of a Ref by `ref[...] = x`" if self.aval.accumulates else ""
            )
            raise AttributeError(
                f"a value of type {self.aval} has no attribute {name!r} that can be set{told}"
                f"{errors.at_source(ir.user_source())}",
                name=name,
                obj=self,
            ) from None


class Concrete(Value):
    """A value whose elements are known now."""

    __slots__ = ()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array, read-only."""
        raise TypeError(f"{type(self).__name__} has no elements")

    def item(self, *index: int) -> Any:
        """The only element as a Python scalar, or that at an index."""
        if not index and self.size != 1:
            raise ValueError(
                f"item: expected a value of one element, got {self.aval}; give an index, or use `x.tolist()`"
                f"{errors.at_source(ir.user_source())}"
            )
        return self.numpy().item(*index)

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        out = self.numpy()
        converted = out if dtype is None else out.astype(dtype, copy=False)
        return converted.copy() if copy else converted

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"bool: expected a value of one element, got {self.aval}; reduce it with `x.any()` or `x.all()`"
                f"{errors.at_source(ir.user_source())}"
            )
        return bool(self.numpy().item())

    def __int__(self) -> int:
        return int(self._number("int", "biuf"))

    def __float__(self) -> float:
        return float(self._number("float", "biuf"))

    def __complex__(self) -> complex:
        return complex(self._number("complex", "biufc"))

    def __index__(self) -> int:
        return int(self._number("index", "iu"))

    def _number(self, what: str, kinds: str) -> Any:
        """The one element, of a value without axes."""
        host = self.numpy()
        kind = "f" if host.dtype.kind == "V" else host.dtype.kind
        if host.ndim or kind not in kinds:
            wanted = {"iu": "an integer", "biuf": "a real number"}.get(kinds, "a number")
            raise TypeError(
                f"{what}: expected {wanted} without axes, got {self.aval}{errors.at_source(ir.user_source())}"
            )
        return host.item()

    def __format__(self, spec: str) -> str:
        if spec and self.shape:
            raise TypeError(
                f"format: expected a value without axes for the format {spec!r}, got {self.aval}; format its "
                f"elements, `x.tolist()`, or use np.array2string{errors.at_source(ir.user_source())}"
            )
        return format(self.item(), spec) if spec else str(self)

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        if 0 in self.shape and self.ndim > 1:
            return f"Array([], shape={self.shape}, dtype={self.dtype.name}{weak})"
        body = np.array2string(self.numpy(), separator=", ", prefix="Array(", threshold=200)
        return f"Array({body}, dtype={self.dtype.name}{weak})"

    def __str__(self) -> str:
        return str(self.numpy())

    def __dlpack__(self, **kwargs: Any) -> Any:
        return client.to_dlpack(to_array(self).buffer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return client.dlpack_device(to_array(self).buffer)

    def __reduce__(self) -> tuple[Any, ...]:
        return device_put, (np.array(self.numpy()), self.weak_type)


class Array(Concrete):
    """An immutable array on a device; its buffer is PJRT's, the class is fiveloop's.

    `of_buffer` makes one: a call of `__init__` would take half of the time.
    """

    __slots__ = ("__weakref__", "_a")
    _a: client.Buffer

    @property
    def buffer(self) -> client.Buffer:
        """The PJRT buffer."""
        return self._a

    @property
    def __array_struct__(self) -> object:
        """The memory, which NumPy asks for before `__array__`: it is half the time."""
        return client.array_struct(self._a)

    @property
    def aval(self) -> ir.Aval:
        return self._a.aval  # type: ignore[no-any-return]  # the buffer gives back the aval that it was made with

    def numpy(self) -> np.ndarray[Any, Any]:
        return self._contents(client.to_numpy)  # type: ignore[no-any-return]  # what the function gives

    def block_until_ready(self) -> Array:
        """Wait until the elements have been computed, and raise what went wrong."""
        if self._a.is_deleted():
            self._contents(client.wait_for)  # names what was donated
        self._a.block_until_ready()
        return self

    def _contents(self, read: Callable[[client.Buffer], Any]) -> Any:
        try:
            return read(self._a)
        except errors.DonatedError as error:
            errors.add_source(error, ir.user_source())
            raise

    def __repr__(self) -> str:
        if self.buffer.is_deleted():
            weak = ", weak_type=True" if self.weak_type else ""
            return f"Array(<donated>, shape={self.shape}, dtype={self.dtype.name}{weak})"
        return super().__repr__()


def of_buffer(buffer: client.Buffer) -> Array:
    """The array of a buffer."""
    x = Array()
    x._a = buffer
    x._note = None
    return x


def _of_buffers(buffers: Sequence[client.Buffer]) -> list[Array]:
    """An array for each buffer, without a call of Python for each."""
    out: list[Array] = []
    for buffer in buffers:
        x = Array()
        x._a = buffer
        x._note = None
        out.append(x)
    return out


def _of_node(_: None, buffers: tuple[client.Buffer]) -> Array:
    """The array of a node of C++ with one buffer, made in one frame."""
    x = Array()
    (x._a,) = buffers
    x._note = None
    return x


call.register_array_class(Array, of_buffer, _of_buffers, _of_node)


class Scalar(Concrete):
    """A number on the host, as Python and NumPy scalars become when they meet arrays.

    `number` is the Python number that it stands for, if any: all its digits are there for a wider dtype. Users get one
    where an operation leaves a number as it is.
    """

    __slots__ = ("_aval", "_on_device", "host", "number")

    def __init__(
        self,
        host: np.ndarray[Any, Any],
        weak_type: bool = False,
        number: float | complex | None = None,
    ) -> None:
        self.host = host
        self.number = number
        self._aval = ir.ShapedArray((), host.dtype, weak_type)
        self._on_device: Array | None = None
        self._note = None

    @property
    def aval(self) -> ir.Aval:
        return self._aval

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.host

    @property
    def exact(self) -> Any:
        """The number with all digits that are known."""
        return self.host if self.number is None else self.number

    def on_device(self) -> Array:
        """The number as an array, made once."""
        if self._on_device is None:
            self._on_device = device_put(self.host, self.weak_type)
        return self._on_device

    def block_until_ready(self) -> Array:
        """The number as an array."""
        return self.on_device()

    def __str__(self) -> str:
        return str(self.host.item())


def device_put(x: np.ndarray[Any, Any], weak_type: bool = False) -> Array:
    """A NumPy array's copy on the device, with the same shape and dtype."""
    return of_buffer(client.put(x, ir.ShapedArray(x.shape, x.dtype, weak_type)))


def copied(x: Array) -> Array:
    """The same elements in memory that nothing else uses."""
    return of_buffer(client.copy(x.buffer))


def python_scalar(x: bool | int | float | complex, what: str = "") -> Scalar:
    """A Python scalar as a weak value: bool, int32 (int64 if it must be), float32 or complex64; NumPy's stay."""
    if isinstance(x, bool):
        return Scalar(np.asarray(x, np.bool_))
    if isinstance(x, int):
        if not _INT64.min <= x <= _INT64.max:
            named, at = f"{what}: " if what else "", errors.at_source(ir.user_source())
            raise OverflowError(f"{named}the integer {x} does not fit int64{at}")
        fits = _INT32.min <= x <= _INT32.max
        return Scalar(np.asarray(x, np.int32 if fits else np.int64), weak_type=True)
    if isinstance(x, np.generic):
        return Scalar(np.asarray(x), weak_type=True, number=x)
    dtype = np.complex64 if isinstance(x, complex) else np.float32
    with np.errstate(over="ignore"):
        return Scalar(np.asarray(x, dtype), weak_type=True, number=x)


_UNNAMED = "argument"


def as_value(x: Any, what: str = _UNNAMED) -> Value:
    """An argument that stands for an array, as a value; TypeError that names `what` for any other argument.

    Values, tracers and Refs among them, come back as they are. A Python number is weakly typed: it takes the dtype of
    the other operand. So does NumPy's float64, a subclass of float, but by itself it keeps its dtype. A list is no
    array.

    >>> print(as_value(2).aval, as_value(np.ones(3, np.float32)).aval)
    i32*[] f32[3]
    >>> as_value("2", "softclip: x")
    Traceback (most recent call last):
    TypeError: softclip: x must be an array or a scalar, got '2' of type str
      at ...
    """
    if isinstance(x, Value):
        return x
    if isinstance(x, (bool, int, float, complex)):
        return python_scalar(x, "" if what == _UNNAMED else what)
    if isinstance(x, (np.ndarray, np.generic)):
        if hasattr(x, "mask"):
            raise errors.masked_array(what, ir.user_source())
        return _from_numpy(np.asarray(x), what)
    if any(c.__name__ == "Tracer" and c.__module__.startswith("jax.") for c in type(x).__mro__):
        raise errors.tracer_of_jax(what, x, ir.user_source())
    if hasattr(x, "__jax_array__"):
        return as_value(x.__jax_array__(), what)
    if hasattr(x, "__array__"):
        return _from_numpy(np.asarray(x), what)
    if hasattr(x, "__dlpack__"):
        return _from_numpy(np.from_dlpack(x), what)
    raise errors.no_array(what, x, ir.user_source())


def _from_numpy(x: np.ndarray[Any, Any], what: str) -> Value:
    is_record = x.dtype.kind == "V" and x.dtype.names is not None
    if is_record or x.dtype.kind in "OSUMm" or x.dtype.char in "gG":
        raise TypeError(
            f"{what} must hold numbers of at most 64 bits a part, got a NumPy array of dtype {x.dtype}"
            f"{errors.at_source(ir.user_source())}"
        )
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.dtype not in ELEMENT_TYPES:
        raise TypeError(
            f"{what} must be of a dtype that arrays can have, got a NumPy array of dtype {x.dtype}; convert it first, "
            f"to int8 or float32 for example{errors.at_source(ir.user_source())}"
        )
    return Scalar(x.copy()) if x.ndim == 0 else device_put(x)


def to_array(x: Value) -> Array:
    """A concrete value on the device.

    A Python number that was only on the host is copied there. TracerError for a traced value, which has no contents.

    >>> x = to_array(as_value(2.0))
    >>> type(x).__name__, x.item()
    ('Array', 2.0)
    """
    if isinstance(x, Array):
        return x
    if isinstance(x, Scalar):
        return x.on_device()
    raise errors.TracerError(f"expected a concrete array, got a traced value of type {x.aval}")

"""A small typed builder that writes StableHLO as text.

A `Builder` holds one module. Functions are written with `Builder.function`; inside its body,
operations are module functions `op(b, *operands)` that append a line and return an `IRValue`.
Regions (loop bodies, branches) are written by callbacks and may use values of the outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import inf, prod
from typing import TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..dataclass import dataclass, field
from .native import jaxlib_version

Shape: TypeAlias = tuple[int, ...]
Ints: TypeAlias = Sequence[int]
TypeSpec: TypeAlias = tuple[Sequence[int], DTypeLike]
"""The shape and dtype of one parameter or result."""

ELEMENT_TYPES: dict[np.dtype, str] = {
    np.dtype(key): name
    for key, name in {
        np.bool_: "i1",
        np.int8: "i8",
        np.int16: "i16",
        np.int32: "i32",
        np.int64: "i64",
        np.uint8: "ui8",
        np.uint16: "ui16",
        np.uint32: "ui32",
        np.uint64: "ui64",
        np.float16: "f16",
        ml_dtypes.bfloat16: "bf16",
        np.float32: "f32",
        np.float64: "f64",
        np.complex64: "complex<f32>",
        np.complex128: "complex<f64>",
        ml_dtypes.float8_e4m3fn: "f8E4M3FN",
        ml_dtypes.float8_e5m2: "f8E5M2",
        ml_dtypes.float8_e4m3fnuz: "f8E4M3FNUZ",
        ml_dtypes.float8_e5m2fnuz: "f8E5M2FNUZ",
        ml_dtypes.float8_e4m3b11fnuz: "f8E4M3B11FNUZ",
    }.items()
}

FLOAT_DTYPES: frozenset[np.dtype] = frozenset(
    dtype for dtype, name in ELEMENT_TYPES.items() if name.startswith(("f", "b"))
)


def element_type(dtype: DTypeLike) -> str:
    """The StableHLO name of a dtype, such as `f32` or `ui8`."""
    name = ELEMENT_TYPES.get(np.dtype(dtype))
    if name is None:
        known = ", ".join(str(d) for d in ELEMENT_TYPES)
        raise TypeError(f"expected a dtype that XLA can hold ({known}), got {np.dtype(dtype)}")
    return name


def tensor_type(shape: Sequence[int], dtype: DTypeLike) -> str:
    """The StableHLO name of an array type, such as `tensor<2x3xf32>`."""
    return _type_name(tuple(shape), np.dtype(dtype))


@lru_cache(maxsize=4096)
def _type_name(shape: Shape, dtype: np.dtype) -> str:
    return "".join(["tensor<", *(f"{int(d)}x" for d in shape), element_type(dtype), ">"])


@dataclass(frozen=True, slots=True)
class IRValue:
    """A value of the program that is being written: its name and its type.

    `transposed` is the matrix that it is the transpose of, where it was made as one.
    """

    name: str
    shape: Shape
    dtype: np.dtype
    transposed: IRValue | None = field(default=None, compare=False)

    @property
    def type(self) -> str:
        """The StableHLO type of this value."""
        return _type_name(self.shape, self.dtype)


IRValues: TypeAlias = Sequence[IRValue]
Region: TypeAlias = Callable[[], list[IRValue]]
"""Writes the operations of a region, and gives its results."""


def names(values: IRValues) -> str:
    """The names of values, separated by commas."""
    return ", ".join([v.name for v in values])


def types(values: IRValues) -> str:
    """The types of values, separated by commas."""
    return ", ".join([v.type for v in values])


def signature(operands: IRValues, results: Sequence[TypeSpec]) -> str:
    """What ends an operation: the types of its operands and of its results, bare when there is one."""
    outs = ", ".join([tensor_type(shape, dtype) for shape, dtype in results])
    return f" : ({types(operands)}) -> {outs if len(results) == 1 else f'({outs})'}"


@dataclass(slots=True)
class _Frame:
    """One function while it is being written."""

    lines: list[str] = field(default_factory=list)
    next_name: int = 0
    indent: str = "    "
    # One table a region, innermost last: a constant of a region is not visible outside it.
    constants: list[dict[object, IRValue]] = field(default_factory=lambda: [{}])
    loops: list[_AroundLoop] = field(default_factory=list)

    def fresh(self) -> str:
        name = f"%{self.next_name}"
        self.next_name += 1
        return name


@dataclass(frozen=True, slots=True)
class _AroundLoop:
    """The region in which a loop stands that is being written, how many turns it takes, and its first name's number.

    What is made before it, to be used in it, may take as many bytes as there is `room`.
    """

    lines: list[str]
    indent: str
    constants: list[dict[object, IRValue]]
    turns: int
    room: float
    first: int


KEPT = ('inlineable = "false"',)
"""What marks a call that XLA keeps, also where a version drops barriers before it fuses."""
ONE_KERNEL = (*KEPT, 'xla_cpu_small_call = "true"')
"""What marks a call that XLA's CPU compiles one kernel for: it gives the loops that it finds small such a call."""


class Builder:
    """One StableHLO module while it is being written."""

    def __init__(self, name: str = "main") -> None:
        self._name = _symbol(name)
        self._functions: list[tuple[bool, str]] = []
        self._frames: list[_Frame] = []
        self._symbols: set[str] = set()
        self._passes: dict[TypeSpec, str] = {}

    def function(
        self,
        name: str,
        params: Sequence[TypeSpec],
        *,
        public: bool = False,
        param_attrs: Sequence[Mapping[str, str] | None] | None = None,
        body: Callable[[list[IRValue]], list[IRValue]],
    ) -> str:
        """Write a function and return its symbol, which is made unique in the module.

        It may be called while another function is being written: functions are collected apart.
        """
        symbol = self._unique_symbol(name, public)
        args = [IRValue(f"%arg{i}", tuple(s), np.dtype(d)) for i, (s, d) in enumerate(params)]
        attrs = param_attrs if param_attrs is not None else [None] * len(args)
        pairs = zip(args, attrs, strict=True)
        head = [f"{a.name}: {a.type}{_attr_text(attr)}" for a, attr in pairs]
        frame = _Frame()
        self._frames.append(frame)
        try:
            results = body(args)
        finally:
            self._frames.pop()
        visibility = "public" if public else "private"
        arrow = f" -> ({types(results)})" if results else ""
        end = f"    return {names(results)} : {types(results)}" if results else "    return"
        start = f"  func.func {visibility} @{symbol}({', '.join(head)}){arrow} {{"
        self._functions.append((public, "\n".join([start, *frame.lines, end, "  }"])))
        return symbol

    def call(
        self, symbol: str, args: IRValues, results: Sequence[TypeSpec], marks: Sequence[str] = ()
    ) -> list[IRValue]:
        """Call a function of this module by its symbol; `marks` tell the compiler how."""
        attrs = f" {{mhlo.frontend_attributes = {{{', '.join(marks)}}}}}" if marks else ""
        text = f"func.call @{symbol}({names(args)}){attrs}{signature(args, results)}"
        return self.emit_many(text, results)

    def passed(self, x: IRValue) -> IRValue:
        """The same value, through a function that the compiler keeps: it is in memory before it is used."""
        key = (x.shape, x.dtype)
        if key not in self._passes:
            self._passes[key] = self.function("passed", [key], body=list)
        return self.call(self._passes[key], [x], [key], KEPT)[0]

    def text(self) -> str:
        """The whole module; public functions come first."""
        ordered = [t for public, t in self._functions if public]
        ordered += [t for public, t in self._functions if not public]
        return "\n".join([f"module @{self._name} {{", *ordered, "}", ""])

    # What operations use to write themselves.

    def emit(self, text: str, shape: Shape, dtype: np.dtype) -> IRValue:
        """Append an operation with one result, given without its left-hand side."""
        frame = self._frames[-1]
        name = frame.fresh()
        frame.lines.append(f"{frame.indent}{name} = {text}")
        return IRValue(name, shape, dtype)

    def emit_typed(self, text: str, xs: IRValues, shape: Ints, dtype: np.dtype) -> IRValue:
        """Append an operation with one result whose text lacks the types of its operands and of that."""
        out = tuple(shape)
        return self.emit(f"{text} : ({types(xs)}) -> {_type_name(out, dtype)}", out, dtype)

    def emit_many(self, text: str, results: Sequence[TypeSpec]) -> list[IRValue]:
        """Append an operation with any number of results; the text may hold whole regions."""
        frame = self._frames[-1]
        if not results:
            frame.lines.append(f"{frame.indent}{text}")
            return []
        name = frame.fresh()
        if len(results) == 1:
            frame.lines.append(f"{frame.indent}{name} = {text}")
            return [IRValue(name, tuple(results[0][0]), np.dtype(results[0][1]))]
        frame.lines.append(f"{frame.indent}{name}:{len(results)} = {text}")
        return [IRValue(f"{name}#{i}", tuple(s), np.dtype(d)) for i, (s, d) in enumerate(results)]

    def remembered(self, key: object, make: Callable[[], IRValue]) -> IRValue:
        """The value that this region made for `key` before, else a new one."""
        table = self._frames[-1].constants[-1]
        value = table.get(key)
        if value is None:
            value = table[key] = make()
        return value

    def region_args(self, specs: Sequence[TypeSpec]) -> list[IRValue]:
        """New names for the parameters of a region."""
        frame = self._frames[-1]
        return [IRValue(frame.fresh(), tuple(shape), np.dtype(dtype)) for shape, dtype in specs]

    def region(
        self, body: Callable[[], IRValues], args: IRValues = ()
    ) -> tuple[str, list[IRValue]]:
        """Write a region, with its own parameters if any: its text and the values it returns."""
        frame = self._frames[-1]
        outer_lines, outer_indent = frame.lines, frame.indent
        frame.lines, frame.indent = [], outer_indent + "  "
        frame.constants.append({})
        try:
            results = list(body())
            inner = frame.lines
        finally:
            frame.lines, frame.indent = outer_lines, outer_indent
            frame.constants.pop()
        given = f" {names(results)} : {types(results)}" if results else ""
        params = ", ".join([f"{a.name}: {a.type}" for a in args])
        head = [f"{outer_indent}^bb0({params}):"] if args else []
        lines = [
            "{",
            *head,
            *inner,
            f"{outer_indent}  stablehlo.return{given}",
            f"{outer_indent}}}",
        ]
        return "\n".join(lines), results

    @contextmanager
    def in_loop(self, turns: int, room: float) -> Iterator[None]:
        """Within it, the regions of a loop are written, which stands in the region that is written now."""
        frame = self._frames[-1]
        tables = [*frame.constants]
        around = _AroundLoop(frame.lines, frame.indent, tables, turns, room, frame.next_name)
        frame.loops.append(around)
        try:
            yield
        finally:
            frame.loops.pop()

    @property
    def is_in_loop(self) -> bool:
        """Whether what is written now stands in a loop."""
        return any(frame.loops for frame in self._frames)

    def before_loops(
        self, x: IRValue, name: str, least: int, make: Callable[[], IRValue]
    ) -> IRValue | None:
        """What is made of `x`, of its size, before all loops around which it was made.

        None if these take fewer turns than `least`, or leave no room for it. It is made once under its name, and then
        used in any loop.
        """
        frame, number = self._frames[-1], x.name[1:].partition("#")[0]
        made_at = int(number) if number.isdigit() else -1
        loops = [around for around in frame.loops if made_at < around.first]
        if not loops:
            return None
        outermost, key = loops[0], (name, x.name)
        size = prod(x.shape) * x.dtype.itemsize
        pays = prod(a.turns for a in loops) >= least and size <= min(a.room for a in loops)
        if key not in outermost.constants[-1] and not pays:
            return None
        here = frame.lines, frame.indent, frame.constants
        there = outermost.lines, outermost.indent, outermost.constants
        frame.lines, frame.indent, frame.constants = there
        try:
            return self.remembered(key, make)
        finally:
            frame.lines, frame.indent, frame.constants = here

    @property
    def indent(self) -> str:
        """The white space before the line that is written next."""
        return self._frames[-1].indent

    def _unique_symbol(self, name: str, public: bool) -> str:
        symbol, count = _symbol(name), 0
        # `main` is where XLA enters, so no private function may take that name first.
        while symbol in self._symbols or (symbol == "main" and not public):
            count += 1
            symbol = f"{_symbol(name)}_{count}"
        self._symbols.add(symbol)
        return symbol


def generic(
    b: Builder,
    op: str,
    operands: IRValues,
    results: Sequence[TypeSpec],
    attrs: str = "",
    regions: Sequence[str] = (),
) -> list[IRValue]:
    """Write any operation in MLIR's generic form; `attrs` is the text between its braces."""
    region_text = f" ({', '.join(regions)})" if regions else ""
    attr_text = f" {{{attrs}}}" if attrs else ""
    text = f'"{op}"({names(operands)}){region_text}{attr_text}{signature(operands, results)}'
    return b.emit_many(text, results)


def int_list(values: Sequence[int]) -> str:
    """Integers as text, `[1, 2]`."""
    return f"[{', '.join([str(int(v)) for v in values])}]"


def int_array(values: Sequence[int]) -> str:
    """Integers as an MLIR array attribute, `array<i64: 1, 2>`."""
    return f"array<i64: {int_list(values)[1:-1]}>" if len(values) else "array<i64>"


def _attr_text(attrs: Mapping[str, str] | None) -> str:
    if not attrs:
        return ""
    return f" {{{', '.join([f'{key} = {value}' for key, value in attrs.items()])}}}"


def _symbol(name: str) -> str:
    """A name that MLIR takes as a bare symbol: letters, digits, `_`, `$`, `.` only."""
    kept = "".join([c if c.isascii() and (c.isalnum() or c in "_$.") else "_" for c in name])
    return kept if kept and not kept[0].isdigit() else f"_{kept}"


_HEX_ABOVE = 64  # arrays with more elements than this are written as one string of bytes


def constant(
    b: Builder, value: ArrayLike, shape: Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> IRValue:
    """A constant: a scalar repeated over `shape`, or an array of exactly that shape."""
    array = np.asarray(value) if dtype is None else np.asarray(value).astype(np.dtype(dtype))
    out_shape = array.shape if shape is None else tuple(shape)
    if array.shape not in ((), out_shape):
        raise ValueError(f"expected a scalar or an array of shape {out_shape}, got {array.shape}")
    scalar = _splat(array)
    if scalar is None and array.dtype == np.bool_ and array.size > _HEX_ABOVE:
        # MLIR versions pack the bytes of bools differently, and one after the other they are slow to read.
        held = constant(b, array.view(np.uint8))
        return b.emit_typed(f"stablehlo.convert {held.name}", [held], out_shape, array.dtype)
    if scalar is None:
        return _emit(b, _dense_text(array), out_shape, array.dtype)
    bits, out_dtype = scalar.tobytes(), array.dtype
    return b.remembered(
        (bits, out_dtype, out_shape),
        lambda: _emit(b, _splat_text(bits, out_dtype), out_shape, out_dtype),
    )


@lru_cache(maxsize=4096)
def _splat_text(bits: bytes, dtype: np.dtype) -> str:
    # Programs say 0 and 1 over and over, and printing a float exactly is slow.
    return element_text(np.frombuffer(bits, dtype).reshape(()))


def element_text(x: np.ndarray) -> str:
    """One element, a 0-d array, as an MLIR literal that reads back to the same bits."""
    if x.dtype == np.bool_:
        return "true" if x else "false"
    if x.dtype.kind == "c":
        return f"({element_text(x.real)}, {element_text(x.imag)})"
    return _float_text(x) if x.dtype in FLOAT_DTYPES else str(int(x))


def _emit(b: Builder, text: str, shape: tuple[int, ...], dtype: np.dtype) -> IRValue:
    return b.emit(f"stablehlo.constant dense<{text}> : {tensor_type(shape, dtype)}", shape, dtype)


def _splat(array: np.ndarray) -> np.ndarray | None:
    """The one element of the array if all its elements have the same bits."""
    if array.shape == ():
        return array
    if array.size == 0:
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    # Bits are compared, not values: 0.0 equals -0.0, and a NaN does not equal itself.
    rows = flat.view(np.uint8).reshape(array.size, -1)
    return flat[:1].reshape(()) if bool((rows == rows[0]).all()) else None


def _dense_text(array: np.ndarray) -> str:
    if array.size == 0:
        return ""
    if array.size > _HEX_ABOVE and array.dtype != np.bool_:
        return f'"0x{np.ascontiguousarray(array).tobytes().hex().upper()}"'
    if array.ndim == 1:
        scalars = [array[i : i + 1].reshape(()) for i in range(array.size)]
        return f"[{', '.join(map(element_text, scalars))}]"
    return f"[{', '.join([_dense_text(np.asarray(row)) for row in array])}]"


def _float_text(x: np.ndarray) -> str:
    """A decimal where it reads back to the same bits through a double, else the bits in hex."""
    bits = x.tobytes()
    with np.errstate(invalid="ignore"):  # a signalling NaN is a constant like any other
        finite = bool(np.isfinite(x))
    if finite:
        for decimal in (str(x), repr(float(x))):
            text = _with_point(decimal)
            if text is not None and np.asarray(float(text)).astype(x.dtype).tobytes() == bits:
                return text
    return f"0x{bits[::-1].hex().upper()}"


def _with_point(decimal: str) -> str | None:
    """MLIR wants a point before an exponent: `1e-05` becomes `1.0e-05`."""
    mantissa, e, exponent = decimal.partition("e")
    if not mantissa.lstrip("-").replace(".", "", 1).isdigit():
        return None
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    mantissa = f"{mantissa}0" if mantissa.endswith(".") else mantissa
    return f"{mantissa}{e}{exponent}"


LITTLE, SHARE = 32_768, 16
"""The bytes of what is made before a loop to be used in it: so many, or one part in so many of what it is given."""


def room_before_loops(given: int) -> int:
    """How many bytes a value may have that is made before a loop which is given so many bytes."""
    return max(LITTLE, given // SHARE)


def while_(
    b: Builder,
    init: IRValues,
    cond: Callable[[list[IRValue]], IRValue],
    body: Callable[[list[IRValue]], list[IRValue]],
    turns: int = 1,
    room: float = inf,
) -> list[IRValue]:
    """Run `body` on the carried values as long as `cond` of them holds.

    It is expected to take so many turns; what all of them use may be made before them, if it takes no more bytes than
    there is `room`.
    """
    specs: list[TypeSpec] = [(v.shape, v.dtype) for v in init]
    with b.in_loop(turns, room):
        args = b.region_args(specs)
        cond_text, _ = b.region(lambda: [cond(args)])
        body_text, outs = b.region(lambda: body(args))
    _require_types("while body", outs, specs)
    heads = ", ".join([f"{a.name} = {v.name}" for a, v in zip(args, init, strict=True)])
    text = f"stablehlo.while({heads}) : {types(init)}\n{b.indent}cond {cond_text} do {body_text}"
    return b.emit_many(text, specs)


def if_(
    b: Builder, pred: IRValue, then: Region, else_: Region, results: Sequence[TypeSpec]
) -> list[IRValue]:
    """The results of one of two branches, by a scalar predicate."""
    return _branches(b, "stablehlo.if", pred, [then, else_], results)


def case(
    b: Builder, index: IRValue, branches: Sequence[Region], results: Sequence[TypeSpec]
) -> list[IRValue]:
    """The results of one branch of many, by a scalar i32; an index out of range takes the last."""
    return _branches(b, "stablehlo.case", index, branches, results)


def _branches(
    b: Builder, op: str, chosen: IRValue, branches: Sequence[Region], results: Sequence[TypeSpec]
) -> list[IRValue]:
    texts = []
    for k, branch in enumerate(branches):
        text, outs = b.region(branch)
        _require_types(f"{op} branch {k}", outs, results)
        texts.append(text)
    return generic(b, op, [chosen], results, regions=texts)


def optimization_barrier(b: Builder, xs: IRValues) -> list[IRValue]:
    """The same values, which XLA may not compute before all of them are asked for."""
    if not xs:
        return []
    specs: list[TypeSpec] = [(x.shape, x.dtype) for x in xs]
    return b.emit_many(f"stablehlo.optimization_barrier {names(xs)} : {types(xs)}", specs)


def as_stored(b: Builder, xs: IRValues) -> list[IRValue]:
    """The same values, rounded as if they had been stored: x + 1 + 1 does not become x + 2 across this.

    From jaxlib 0.12 on XLA does not do that, and keeps the barrier longer, which would cost there.
    """
    floats = [x for x in xs if x.dtype.kind not in "biu"]
    if jaxlib_version() >= (0, 12) or not floats:
        return list(xs)
    stored = iter(optimization_barrier(b, floats))
    return [x if x.dtype.kind in "biu" else next(stored) for x in xs]


def custom_call(
    b: Builder, target: str, operands: IRValues, results: Sequence[TypeSpec], attrs: str = ""
) -> list[IRValue]:
    """A call of a function registered with XLA; `attrs` is the text between its braces."""
    braces = f" {{{attrs}}}" if attrs else ""
    text = f"stablehlo.custom_call @{target}({names(operands)}){braces}"
    return b.emit_many(text + signature(operands, results), results)


def to_memory(b: Builder, x: IRValue, memory: str) -> IRValue:
    """The same value in another memory; where it becomes part of a stack, XLA keeps the stack there."""
    placed = f'mhlo.frontend_attributes = {{_xla_buffer_placement = "{memory}"}}'
    attrs = f"has_side_effect = true, {placed}"
    return custom_call(b, "annotate_device_placement", [x], [(x.shape, x.dtype)], attrs)[0]


def _require_types(where: str, outs: IRValues, specs: Sequence[TypeSpec]) -> None:
    got = [v.type for v in outs]
    expected = [tensor_type(shape, dtype) for shape, dtype in specs]
    if got != expected:
        raise TypeError(f"hlo {where}: expected results {expected}, got {got}")

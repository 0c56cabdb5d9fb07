"""Parses the index of `x[...]` into its normal form and operands."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from fiveloop.core import arrays, errors, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import dataclass, field
from fiveloop.core.ir.indexer import At, Entry, Indexer, Pick, Span

HostArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DynamicSpan:
    """The index that `ds` makes: `size` positions from a start that may be known only at run time."""

    start: Any
    size: int
    stride: int = 1


def ds(start: Any, size: int, stride: int = 1) -> DynamicSpan:
    """An index of `size` positions from `start` on, where the start may be a traced integer.

    A negative start counts from the end. A traced one is clamped for a read, so that the span fits; a write leaves out
    the positions that are outside. A start that is a Python number must fit.

    >>> ds(2, 3)
    DynamicSpan(start=2, size=3, stride=1)
    """
    given: dict[str, Any] = {"size": size, "stride": stride}
    for name, x in given.items():
        if not isinstance(x, int) or isinstance(x, bool):
            prims.bad_type(
                f"ds: expected an int as {name}, got {x!r}; sizes must be known while tracing: {errors.STATIC}"
            )
    if size < 0 or stride < 1:
        prims.bad_value(f"ds: expected size >= 0 and stride >= 1, got {size} and {stride}")
    return DynamicSpan(start, size, stride)


@dataclass(frozen=True, slots=True)
class Normal:
    """An index that is in its normal form already."""

    indexer: Indexer
    operands: list[Value]


def normalize(shape: ir.Shape, index: Any) -> tuple[Indexer, list[Value]]:
    """The normal form of an index into an array of the given shape, and the values of its dynamic parts.

    The operands are integers, one for each entry that takes one, in the order of the entries.

    >>> indexer, operands = normalize((3, 4), (slice(None), 1))
    >>> print(indexer, operands, indexer.result_shape)
    0:3, 1 [] (3,)
    """
    if type(index) is Normal:
        return index.indexer, index.operands
    parser = _Parser(shape)
    for item in expand_ellipsis(shape, index):
        parser.add(item)
    return parser.finish()


def expand_ellipsis(shape: ir.Shape, index: Any) -> list[Any]:
    """The items of an index, `...` written out, so that they consume all axes; masks as integer arrays."""
    items = [_item(i) for i in (index if isinstance(index, tuple) else (index,))]
    used = sum(_consumed(i) for i in items)
    if used > len(shape):
        bad_index(
            f"expected at most {len(shape)} indices for an array of shape {errors.shape_str(shape)}, "
            f"got {used} in {index!r}"
        )
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        bad_index(f"expected at most one `...` in an index, got {len(dots)} in {index!r}")
    at = dots[0] if dots else len(items)
    full: list[Any] = [slice(None)] * (len(shape) - used)
    return [*items[:at], *full, *items[at + 1 :]]


def bad_index(message: str) -> NoReturn:
    """Raise an IndexError that ends with the user's line."""
    raise IndexError(f"{message}{errors.at_source(ir.user_source())}")


def _item(i: Any) -> Any:
    """An item as a bool, int, slice, None, `...`, DynamicSpan, NumPy array (1-d or more) or value."""
    if i is None or i is Ellipsis or isinstance(i, (slice, DynamicSpan)):
        return i
    if isinstance(i, (bool, np.bool_)):
        return bool(i)
    if isinstance(i, (int, np.integer)):
        return int(i)
    if isinstance(i, (list, float, complex, str, bytes, dict, set)):
        prims.bad_type(
            f"expected an index to be an integer, a slice, an array of integers, `...` or None, got "
            f"{type(i).__name__} {i!r}"
            + ("; use a tuple for several axes, or numpy.array(...)" if isinstance(i, list) else "")
        )
    x: Any = i
    if not isinstance(i, (Value, np.ndarray)):
        is_array = hasattr(i, "__array__") or hasattr(i, "__jax_array__")
        is_integer = not is_array and hasattr(i, "__index__")
        x = np.asarray(operator.index(i)) if is_integer else arrays.as_value(i, "index")
    if isinstance(x, Value) and x.aval.accumulates:
        prims.bad_type(f"expected an index, got {x.aval}; read a Ref first: `ref[...]`")
    if isinstance(x, arrays.Scalar) or (isinstance(x, np.ndarray) and not x.ndim):
        return _item(np.asarray(x).item())
    if x.dtype != np.bool_ and x.dtype.kind not in "iu":
        prims.bad_type(
            f"expected an index array of integers or bools, got {x.dtype.name}{list(x.shape)}"
        )
    if x.dtype == np.bool_ and isinstance(x, arrays.Concrete):
        return np.asarray(x) if x.ndim else bool(x)
    return x


def _consumed(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if isinstance(item, (Value, np.ndarray)) and item.dtype == np.bool_ else 1


@dataclass
class _Parser:
    """The entries so far, and the order in which spans, picks and new axes come in the result."""

    shape: ir.Shape
    entries: list[Entry] = field(default_factory=list)
    operands: dict[int, Value | HostArray] = field(default_factory=dict)
    layout: list[str] = field(default_factory=list)
    flags: list[bool] = field(default_factory=list)

    def add(self, item: Any) -> None:
        """Take the next item."""
        if item is None:
            self.layout.append("new")
        elif isinstance(item, bool):
            self.flags.append(item)
            self.layout.append("pick")
        elif isinstance(item, np.ndarray) and item.dtype == np.bool_:
            self._mask(item)
        elif isinstance(item, slice):
            self._entry(_slice(item, self._size, self._axis), "span")
        elif isinstance(item, DynamicSpan):
            self._dynamic_span(item)
        elif isinstance(item, int):
            self._entry(At(_static(item, self._size, self._axis)), "at")
        elif isinstance(item, np.ndarray):
            self._pick(_checked(item, self._size, self._axis))
        elif item.dtype == np.bool_:
            prims.bad_type(
                f"expected a mask whose elements are known, got the traced mask {item!r}: the size of the "
                "result must be static; use `where`, or write with `x.at[mask].set(v)`"
            )
        elif not ir.is_empty(item.shape) and ir.same_dim(self._size, 0):
            bad_index(
                f"expected an axis that has elements for an index, got axis {self._axis}, of size 0, of an array of "
                f"shape {errors.shape_str(self.shape)}; leave the code out for empty arrays"
            )
        elif not item.ndim:
            self._dynamic(At(None), item, "at")
        else:
            self._pick(item)

    @property
    def _axis(self) -> int:
        return len(self.entries)

    @property
    def _size(self) -> ir.Dim:
        return self.shape[self._axis]

    def _entry(self, entry: Entry, kind: str) -> None:
        self.entries.append(entry)
        self.layout.append(kind)

    def _dynamic(self, entry: Entry, operand: Value | HostArray, kind: str) -> None:
        self.operands[self._axis] = operand
        self._entry(entry, kind)

    def _pick(self, operand: Value | HostArray) -> None:
        self._dynamic(Pick(), operand, "pick")

    def _mask(self, mask: HostArray) -> None:
        given = self.shape[self._axis : self._axis + mask.ndim]
        if mask.shape != given:
            bad_index(
                f"expected a mask of shape {errors.shape_str(given)} for axis {self._axis} of an array of shape "
                f"{errors.shape_str(self.shape)}, got {errors.shape_str(mask.shape)}"
            )
        for positions in mask.nonzero():
            self._pick(positions.astype(np.int32))

    def _dynamic_span(self, item: DynamicSpan) -> None:
        span = Span(None, item.size, item.stride)
        if span.extent > self._size:
            bad_index(
                f"expected a span that fits axis {self._axis} of size {self._size}, got {item.size} "
                f"positions with stride {item.stride}"
            )
        start = _item(item.start)
        if isinstance(start, int):
            low = start + self._size if start < 0 else start
            if not 0 <= low <= self._size - span.extent:
                bad_index(
                    f"ds({start}, {item.size}) is out of bounds for axis {self._axis} of size {self._size}"
                )
            self._entry(Span(low, item.size, item.stride), "span")
        elif isinstance(start, Value) and not start.ndim and start.dtype != np.bool_:
            self._dynamic(span, start, "span")
        else:
            prims.bad_type(f"ds: expected the start to be one integer, got {start!r}")

    def finish(self) -> tuple[Indexer, list[Value]]:
        """The normal form, with the picks broadcast to one shape."""
        picks = [self.operands[k] for k, e in enumerate(self.entries) if isinstance(e, Pick)]
        # A mask without axes is an array of one position, or of none, that takes no axis.
        flags: list[ir.Shape] = [(int(flag),) for flag in self.flags]
        shapes = [*[tuple(x.shape) for x in picks], *flags]
        pick_shape = ir.broadcast_shapes(*shapes)
        if pick_shape is None:
            listed = ", ".join(map(errors.shape_str, shapes))
            bad_index(f"expected index arrays whose shapes broadcast together, got {listed}")
        if flags and not picks:
            return self._flagged(pick_shape)
        pick_axis, new_axes = _result_layout(self.layout, len(pick_shape))
        indexer = Indexer(tuple(self.entries), pick_shape, pick_axis, new_axes)
        axes = [(k, isinstance(self.entries[k], Pick)) for k in indexer.dynamic_axes]
        return indexer, [_operand(self.operands[k], pick_shape if p else ()) for k, p in axes]

    def _flagged(self, pick_shape: ir.Shape) -> tuple[Indexer, list[Value]]:
        """The normal form where masks without axes are the only arrays: they make a new axis, or choose nothing."""
        pick_axis, new_axes = _result_layout(self.layout, 1)
        if all(self.flags):
            given = [k for k in self.layout if k in ("span", "new")]
            given.insert(_axis_of_picks(self.layout), "new")
            new_axes = tuple(k for k, kind in enumerate(given) if kind == "new")
            operands = [_operand(self.operands[k], ()) for k in sorted(self.operands)]
            return Indexer(tuple(self.entries), new_axes=new_axes), operands
        shape = Indexer(tuple(self.entries), pick_shape, pick_axis, new_axes).result_shape
        nothing = arrays.as_value(np.zeros(shape, np.int32))
        count = len(self.entries)
        return Indexer(tuple([Pick()] * count), shape), [nothing] * count


def _static(i: int, size: ir.Dim, axis: int) -> int:
    if not -size <= i < size:
        bad_index(f"index {i} is out of bounds for axis {axis} of size {size}")
    return i + size if i < 0 else i


def _slice(s: slice, size: ir.Dim, axis: int) -> Span:
    if s.start is s.stop is s.step is None:
        return Span(0, size, 1)  # also of an axis whose size is no number
    for name, bound in (("start", s.start), ("stop", s.stop), ("step", s.step)):
        if bound is not None and not hasattr(bound, "__index__"):
            prims.bad_type(f"expected the {name} of a slice to be an int, got {bound!r}")
        if name == "step" and bound is not None and not isinstance(bound, Value) and bound == 0:
            prims.bad_value(f"expected the step of a slice of axis {axis} not to be 0")
        if isinstance(bound, Value) and not isinstance(bound, arrays.Concrete):
            prims.bad_type(
                f"expected the {name} of a slice of axis {axis} to be known, got the traced value {bound!r}; "
                f"use `ds(start, size)` for a run-time start, or {errors.STATIC}"
            )
    start, stop, step = s.indices(size)
    count = len(range(start, stop, step))
    return Span(start if count else 0, count, step if count > 1 else 1)


def _checked(i: HostArray, size: ir.Dim, axis: int) -> HostArray:
    """An integer array on the host, with its bounds checked and negatives counted from the end."""
    outside = i[(i < -size) | (i >= size)]
    if outside.size:
        bad_index(f"index {outside[0]} is out of bounds for axis {axis} of size {size}")
    found: HostArray = i.astype(np.int64 if size > np.iinfo(np.int32).max else np.int32)
    return np.where(found < 0, found + size, found)


def _result_layout(layout: Sequence[str], pick_ndim: int) -> tuple[int, tuple[int, ...]]:
    """Where the picks go among the spans, and where new axes go in the result, by NumPy's rule.

    Scalars count as picks if there are any. Picks side by side stay where the first is; otherwise they
    come first.
    """
    result = [k for k in layout if k in ("span", "new")]
    spans_before = 0
    if "pick" in layout:
        at = _axis_of_picks(layout)
        result[at:at] = ["pick"] * pick_ndim
        spans_before = layout[:at].count("span")
    return spans_before, tuple(k for k, kind in enumerate(result) if kind == "new")


def _axis_of_picks(layout: Sequence[str]) -> int:
    """Where the picks stand among the axes of the result."""
    advanced = [k for k, kind in enumerate(layout) if kind in ("pick", "at")]
    return advanced[0] if advanced[-1] - advanced[0] == len(advanced) - 1 else 0


def _operand(x: Value | HostArray, shape: ir.Shape) -> Value:
    if isinstance(x, np.ndarray):
        return arrays.as_value(np.broadcast_to(x, shape) if shape != x.shape else x)
    return prims.broadcast_in_dim(x, shape, range(len(shape) - x.ndim, len(shape)))

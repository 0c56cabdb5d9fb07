"""Indexing outside of traces: one compiled program for each form of index, for all positions.

Static positions become arguments of the program, so that `x[0]`, `x[1]`, ... share one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from fiveloop.core import ad, arrays, ir, trace, util
from fiveloop.core.arrays import Value
from fiveloop.core.backend.client import Buffer
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.index import access, parse
from fiveloop.core.ir.indexer import At, Entry, Indexer, Span, around_block
from fiveloop.core.lower.dispatch import eager_program, explain
from fiveloop.core.trace.fused import number_to_write

Flags: TypeAlias = tuple[bool, bool]
LARGE = 2**18
"""From about this many elements on, copying an array takes longer than two more calls."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """An index all of whose positions are on the device, and the program that reads there.

    `is_checked` says that the positions are known to be in range.
    """

    indexer: Indexer
    result_shape: ir.Shape
    positions: tuple[Buffer, ...]
    read: Any
    is_checked: bool = False


def take_now(x: arrays.Array, index: Any) -> Value:
    """`x[index]` of a concrete array."""
    plan = _plan(x.shape, index)
    if isinstance(plan, _Plan):
        try:
            return arrays.of_buffer(plan.read(x.buffer, *plan.positions)[0])
        except Exception as error:
            explain(error, [x.buffer], "index")
            raise
    indexer, operands = plan
    return access.take(x, indexer, operands)


def put_now(
    x: arrays.Array,
    index: Any,
    v: Any,
    kind: str,
    flags: Flags = (False, False),
    *,
    donate: bool = False,
    drops: bool = True,
) -> Value:
    """A concrete array with a value combined into it at an index; with `donate`, in the same memory.

    Where an index that is not checked lies outside, nothing is written if it `drops`; else it is clamped.
    """
    plan = _plan(x.shape, index)
    if drops and isinstance(plan, _Plan) and not plan.is_checked:
        plan = replace(plan, indexer=plan.indexer.dropping())
    if isinstance(plan, _Plan) and kind in ("set", "add") and x.size <= LARGE:
        new = _without_checks(x._a.aval, plan.result_shape, v)
        if new is not None:
            return _put(x, plan, new, kind, flags, donate)
    value = arrays.as_value(v, "the value written")
    access.check_kind(x.aval, kind)
    if not isinstance(plan, _Plan) or not trace.is_concrete(value):
        indexer, operands = plan if isinstance(plan, tuple) else parse.normalize(x.shape, index)
        indexer = indexer.dropping() if drops else indexer
        return access.put(x, indexer, operands, value, kind, unique=flags[0], ascending=flags[1])
    written = _written(x, plan, value)
    if donate and x.size > LARGE and _keeps_some(plan.indexer, kind):
        return _put_in_steps(x, plan, written, kind)
    return _put(x, plan, written, kind, flags, donate)


def _without_checks(aval: ir.Aval, shape: ir.Shape, v: Any) -> Buffer | None:
    """What is written, if its type surely fits: a Python number, or an array of numbers of this dtype and shape."""
    if type(v) is not arrays.Array:
        return number_to_write(aval, v)
    given = v.aval
    fits = given.dtype == aval.dtype and aval.dtype != np.bool_ and given.shape == shape
    return v.buffer if fits else None


def _put(x: arrays.Array, plan: _Plan, new: Buffer, kind: str, flags: Flags, donate: bool) -> Value:
    write = _writer(plan.indexer, kind, flags, donate)
    try:
        return arrays.of_buffer(write(x.buffer, new, *plan.positions)[0])
    except Exception as error:
        explain(error, [x.buffer, new], "update at an index")
        raise


def _keeps_some(indexer: Indexer, kind: str) -> bool:
    """Whether what is written depends on what stands there, and is a block of more than one element."""
    strided = any(isinstance(e, Span) and e.stride != 1 for e in indexer.entries)
    several = any(isinstance(e, Span) for e in indexer.entries)
    return indexer.is_block and several and (strided or kind != "set")


def _put_in_steps(x: arrays.Array, plan: _Plan, written: Buffer, kind: str) -> Value:
    """Read a block, combine, write the block: one program that does it all would copy the array."""
    around, within = around_block(plan.indexer)
    (block,) = _reader(around)(x.buffer, *plan.positions)
    (new,) = _writer(within, kind, (False, False), False)(block, written)
    write = _writer(around, "set", (False, False), True)
    return arrays.of_buffer(write(x.buffer, new, *plan.positions)[0])


def swap_now(
    x: arrays.Array, index: Any, at: Any, v: Any, *, donate: bool = False
) -> tuple[Value, Value]:
    """What a concrete array holds at an index, and the array with a value `at` one, in the same memory if `donate`."""
    # One program that reads and writes would copy the array, since what it reads is a result.
    old = take_now(x, index)
    return old, put_now(x, at, v, "set", donate=donate)


def _written(x: arrays.Array, plan: _Plan, value: Value) -> Buffer:
    """What is written, on the device, after checks."""
    access.check_write(x.aval, plan.result_shape, value.aval)
    if isinstance(value, arrays.Scalar):
        value = arrays.host_scalar(value.exact, arrays.Typed(x.dtype), "the value written")
    arrays.check_narrowing(arrays.Typed(value.dtype, value.weak_type), x.dtype, "the value written")
    return arrays.to_array(value).buffer


def _plan(shape: ir.Shape, index: Any) -> _Plan | tuple[Indexer, list[Value]]:
    """What to run, or the normal form where a position is traced."""
    if type(index) is arrays.Array and index.dtype.kind in "iu" and shape:
        plan = _one_array_form(shape, index.shape)
        return replace(plan, positions=(index.buffer,))
    key = _static_key(index)
    if key is not None:
        return _static_plan(shape, key)
    indexer, operands = parse.normalize(shape, index)
    if not all(map(trace.is_concrete, operands)):
        return indexer, operands
    return _device_plan(shape, indexer, operands)


def is_plain(index: Any) -> bool:
    """Whether an index is made of numbers, slices, `...` and None alone."""
    return type(index) is int or index is ... or _static_key(index) is not None


def is_same_plain(index: Any, other: Any) -> bool:
    """Whether two indices are plain and equal: Python may make the slice of `ref[1:3] += x` twice."""
    key = _static_key(index)
    return key is not None and key == _static_key(other)


def _static_key(index: Any) -> tuple[Any, ...] | None:
    """A hashable form of an index of numbers, slices, `...` and None; None for any other."""
    key: list[Any] = []
    for item in index if type(index) is tuple else (index,):
        if type(item) is slice:
            bounds = (item.start, item.stop, item.step)
            if any(b is not None and type(b) is not int for b in bounds):
                return None
            key.append(bounds)
        elif type(item) is int or isinstance(item, np.integer):
            key.append(int(item))
        elif item is None or item is Ellipsis:
            key.append(item)
        else:
            return None
    return tuple(key)


@util.remembered(8192)
def _static_plan(shape: ir.Shape, key: tuple[Any, ...]) -> _Plan:
    index = tuple(slice(*item) if isinstance(item, tuple) else item for item in key)
    return _device_plan(shape, *parse.normalize(shape, index))


def _device_plan(shape: ir.Shape, indexer: Indexer, operands: ad.Values) -> _Plan:
    is_checked = not indexer.dynamic_axes
    indexer, operands = _at_run_time(shape, indexer, operands)
    buffers = tuple(
        _position(int(i.host)) if isinstance(i, arrays.Scalar) else arrays.to_array(i).buffer
        for i in operands
    )
    return _Plan(indexer, indexer.result_shape, buffers, _reader(indexer), is_checked)


@util.remembered(4096)
def _one_array_form(shape: ir.Shape, index_shape: ir.Shape) -> _Plan:
    at = np.zeros(index_shape, np.int32)
    indexer, _ = parse.normalize(shape, arrays.to_array(arrays.as_value(at)))
    return _Plan(indexer, indexer.result_shape, (), _reader(indexer))


@util.remembered(4096)
def _reader(indexer: Indexer) -> Any:
    def read(x: Value, *operands: Value) -> list[Value]:
        return [access.take(x, indexer, operands)]

    return eager_program(lambda avals: trace.stage_closed(read, avals, "take"))


@util.remembered(4096)
def _writer(indexer: Indexer, kind: str, flags: Flags, donate: bool) -> Any:
    def write(x: Value, v: Value, *operands: Value) -> list[Value]:
        return [access.put(x, indexer, operands, v, kind, unique=flags[0], ascending=flags[1])]

    return eager_program(
        lambda avals: trace.stage_closed(write, avals, "put"), donates_first=donate
    )


@util.remembered(4096)
def _position(i: int) -> Buffer:
    """A number on the device, kept: positions recur."""
    wide = not -(2**31) <= i < 2**31
    return arrays.to_array(arrays.Scalar(np.asarray(i, np.int64 if wide else np.int32))).buffer


def _at_run_time(
    shape: ir.Shape, indexer: Indexer, operands: ad.Values
) -> tuple[Indexer, list[Value]]:
    """The same index with static positions as operands, save where all of an axis is meant."""
    entries: list[Entry] = []
    values: list[Value] = []
    given = iter(operands)
    for axis, e in enumerate(indexer.entries):
        if isinstance(e, (At, Span)) and e.start is not None:
            whole = isinstance(e, Span) and (not e.size or ir.same_dim(e.size, shape[axis]))
            if whole or (isinstance(e, Span) and e.stride != 1):
                entries.append(e)
                continue
            values.append(arrays.Scalar(np.asarray(e.start)))
            entries.append(replace(e, start=None))
        else:
            values.append(next(given))
            entries.append(e)
    return replace(indexer, entries=tuple(entries)), values

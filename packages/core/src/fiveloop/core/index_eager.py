"""Indexing outside of traces: one compiled program for each form of index, whatever the positions are.

Static positions become arguments of the program, so that `x[0]`, `x[1]`, ... share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fiveloop.core.array import Array, Scalar, Value, as_value, to_array
from fiveloop.core.dims import Shape, same_dim
from fiveloop.core.index_parse import bad_index, normalize
from fiveloop.core.indexer import At, Entry, Indexer, Span
from fiveloop.core.indexing import check_kind, check_write, put_kind, take
from fiveloop.core.lower.dispatch import eager_program
from fiveloop.core.trace.stage import stage_closed
from fiveloop.core.trace.tracer import is_concrete


def take_now(x: Array, index: Any) -> Value:
    """`x[index]` of a concrete array."""
    shape = x.shape
    if type(index) is int and shape:
        if not -shape[0] <= index < shape[0]:
            bad_index(f"index {index} is out of bounds for axis 0 of size {shape[0]}")
        return Array(_reader(_one_position(shape))(x.buffer, _position(index).buffer))
    indexer, operands = _at_run_time(x.shape, *normalize(shape, index))
    if not all(map(is_concrete, operands)):
        return take(x, indexer, operands)
    return Array(_reader(indexer)(x.buffer, *[_argument(i).buffer for i in operands]))


def put_now(x: Array, index: Any, v: Any, kind: str, flags: tuple[bool, bool]) -> Value:
    """A concrete array with a value combined into it at an index."""
    indexer, operands = _at_run_time(x.shape, *normalize(x.shape, index))
    value = as_value(v, "the value written")
    check_kind(x.aval, kind)
    check_write(x.aval, indexer.result_shape, value.aval)
    if not all(map(is_concrete, [value, *operands])):
        return put_kind(
            x, indexer, operands, value, kind, unique_indices=flags[0], indices_are_sorted=flags[1]
        )
    arguments = [x, to_array(value), *map(_argument, operands)]
    return Array(_writer(indexer, kind, flags)(*[a.buffer for a in arguments]))


@lru_cache(maxsize=4096)
def _reader(indexer: Indexer) -> Any:
    def read(x: Value, *operands: Value) -> list[Value]:
        return [take(x, indexer, operands)]

    return eager_program("take", lambda avals: stage_closed(read, avals, "take"))


@lru_cache(maxsize=4096)
def _writer(indexer: Indexer, kind: str, flags: tuple[bool, bool]) -> Any:
    def write(x: Value, v: Value, *operands: Value) -> list[Value]:
        return [
            put_kind(
                x, indexer, operands, v, kind, unique_indices=flags[0], indices_are_sorted=flags[1]
            )
        ]

    return eager_program("put", lambda avals: stage_closed(write, avals, "put"))


@lru_cache(maxsize=4096)
def _one_position(shape: Shape) -> Indexer:
    return Indexer((At(None), *[Span(0, n) for n in shape[1:]]))


@lru_cache(maxsize=4096)
def _position(i: int) -> Array:
    """A small number on the device, kept: positions recur."""
    return to_array(Scalar(np.asarray(i, np.int32 if -(2**31) <= i < 2**31 else np.int64)))


def _argument(i: Value) -> Array:
    return _position(int(i.host)) if isinstance(i, Scalar) else to_array(i)


def _at_run_time(
    shape: Shape, indexer: Indexer, operands: Sequence[Value]
) -> tuple[Indexer, list[Value]]:
    """The same index with static positions as operands, save where all of an axis is meant."""
    entries: list[Entry] = []
    values: list[Value] = []
    given = iter(operands)
    for axis, e in enumerate(indexer.entries):
        if isinstance(e, (At, Span)) and e.start is not None:
            if isinstance(e, Span) and (
                e.stride != 1 or not e.size or same_dim(e.size, shape[axis])
            ):
                entries.append(e)
                continue
            values.append(Scalar(np.asarray(e.start)))
            entries.append(replace(e, start=None))
        else:
            values.append(next(given))
            entries.append(e)
    return replace(indexer, entries=tuple(entries)), values

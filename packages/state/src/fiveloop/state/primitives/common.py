"""What the rows of get, swap and addupdate share: the primitives, their index, its types and its batching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from fiveloop.core import (
    Accumulator,
    Aval,
    Indexer,
    Primitive,
    ShapedArray,
    Value,
    Zero,
    batch_indexer,
)
from fiveloop.state.avals import AbstractRef

Tangent = Value | Zero
P = TypeVar("P", bound="IndexParams")


@dataclass(frozen=True)
class IndexParams:
    """Where in the Ref: an index in normal form, whose dynamic parts are the last operands."""

    indexer: Indexer


@dataclass(frozen=True)
class SwapParams(IndexParams):
    """The index, and whether the old element is wanted; if not, the Ref is only written."""

    returns_old: bool = True


get_p: Primitive[IndexParams] = Primitive("get")
swap_p: Primitive[SwapParams] = Primitive("swap")
addupdate_p: Primitive[IndexParams] = Primitive("addupdate")


def element_aval(ref: Aval, indexer: Indexer) -> ShapedArray:
    """The type of what an index reads from a Ref."""
    if not isinstance(ref, AbstractRef):
        raise TypeError(f"expected a Ref, got {ref}")
    return ShapedArray(indexer.result_shape, ref.dtype)


def check_index(what: str, ref: Aval, operands: Sequence[Aval], indexer: Indexer) -> None:
    """Raise TypeError if an index does not fit a Ref or its operands."""
    if len(indexer.entries) != len(ref.shape):
        raise TypeError(
            f"{what}: expected an index of {len(ref.shape)} entries for {ref}, got {indexer}"
        )
    axes = indexer.dynamic_axes
    if len(axes) != len(operands):
        raise TypeError(
            f"{what}: expected {len(axes)} index operands for {indexer}, got {len(operands)}"
        )
    for axis, aval in zip(axes, operands, strict=True):
        if aval.shape != indexer.operand_shape(axis) or aval.dtype.kind not in "iu":
            raise TypeError(
                f"{what}: expected integers of shape {indexer.operand_shape(axis)} as an index, got {aval}"
            )


def check_value(what: str, value: Aval, element: Aval) -> None:
    """Raise TypeError if what is written does not have the element's type."""
    if value.shape != element.shape or value.dtype != element.dtype:
        raise TypeError(f"{what}: expected a value of type {element}, got {value}")


def batched_index(
    p: P, operands: Sequence[Value], dims: Sequence[int | None], ref_dim: int | None, size: int
) -> tuple[P, list[Value]]:
    """The index for the whole batch; what it reads or writes has the batch in axis 0."""
    indexer, moved = batch_indexer(p.indexer, operands, dims, ref_dim, size)
    return replace(p, indexer=indexer), moved


def accumulator(ref: object) -> Value:
    """The accumulator that stands for a linear Ref under transposition."""
    assert isinstance(ref, Accumulator), (
        "unreachable: a linear Ref is transposed through its accumulator"
    )
    return ref.value

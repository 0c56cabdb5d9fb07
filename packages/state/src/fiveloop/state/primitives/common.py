"""Shared by the rows of get, swap, addupdate and accumulate: primitives, indices, types and batching."""

from __future__ import annotations

from typing import TypeVar

from fiveloop.core import Value, ad, ir, prims, trace
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.ir.indexer import Indexer, whole_indexer
from fiveloop.state.refs import AbstractRef

P = TypeVar("P", bound="IndexParams")
_KINDS = {"b": "bools", "iu": "integers", "f": "floats", "c": "complex numbers"}


@dataclass(frozen=True)
class IndexParams:
    """Where in the Ref: an index in normal form, whose dynamic parts are the last operands."""

    indexer: Indexer


@dataclass(frozen=True)
class SwapParams(IndexParams):
    """The index, and whether the old element is wanted; if not, the Ref is only written."""

    returns_old: bool = True


@dataclass(frozen=True)
class AccumulateParams(IndexParams):
    """The index, and the name of the monoid that combines."""

    monoid: str = "max"


def name_of_monoid(p: IndexParams) -> str:
    """By which monoid an equation combines; the params of `addupdate` name none."""
    return p.monoid if isinstance(p, AccumulateParams) else "add"


get_p: ir.Primitive[IndexParams] = ir.Primitive("get")
swap_p: ir.Primitive[SwapParams] = ir.Primitive("swap")
addupdate_p: ir.Primitive[IndexParams] = ir.Primitive("addupdate")
accumulate_p: ir.Primitive[AccumulateParams] = ir.Primitive("accumulate")


def _at(ref: Value, indexer: Indexer | None) -> Indexer:
    return whole_indexer(ref.shape) if indexer is None else indexer


def read(ref: Value, indexer: Indexer | None = None, index: ad.Values = ()) -> Value:
    """What a Ref holds at an index, or all of it."""
    return trace.bind1(get_p, ref, *index, params=IndexParams(_at(ref, indexer)))


def write(ref: Value, x: Value, indexer: Indexer | None = None, index: ad.Values = ()) -> None:
    """Replace what a Ref holds at an index, or all of it."""
    trace.bind(swap_p, ref, x, *index, params=SwapParams(_at(ref, indexer), returns_old=False))


def combine(
    ref: Value, x: Value, indexer: Indexer | None = None, index: ad.Values = (), monoid: str = "add"
) -> None:
    """Combine a value with what a Ref holds at an index, or with all of it."""
    at = _at(ref, indexer)
    if monoid == "add":
        trace.bind(addupdate_p, ref, x, *index, params=IndexParams(at))
    else:
        trace.bind(accumulate_p, ref, x, *index, params=AccumulateParams(at, monoid))


def add_contents(ref: Value, other: Value) -> Value:
    """A Ref, once what another holds is added to it."""
    combine(ref, read(other))
    return ref


def element_aval(ref: ir.Aval, indexer: Indexer) -> ir.ShapedArray:
    """The type of what an index reads from a Ref."""
    if not isinstance(ref, AbstractRef):
        raise TypeError(f"expected a Ref, got {ref}")
    return ir.ShapedArray(indexer.result_shape, ref.dtype)


def check_value(what: str, value: ir.Aval, element: ir.Aval) -> None:
    """Raise TypeError if what is written does not have the element's type."""
    if value.shape != element.shape or value.dtype != element.dtype:
        raise TypeError(f"{what}: expected a value of type {element}, got {value}")


def monoid_of(name: object, ref: ir.Aval) -> prims.Monoid:
    """A monoid by its name, if Refs of this type accumulate by it."""
    if name not in prims.MONOIDS:
        prims.bad_value(
            f"accumulate: expected a monoid among {', '.join(map(repr, prims.MONOIDS))}, got {name!r}"
        )
    monoid = prims.MONOIDS[str(name)]
    kind = "f" if ref.differentiable and ref.dtype.kind != "c" else ref.dtype.kind
    if kind not in monoid.takes:
        taken = " or ".join([word for kinds, word in _KINDS.items() if kinds[0] in monoid.takes])
        prims.bad_type(
            f"accumulate: expected a Ref of {taken} for the monoid {name!r}, got {ref}; "
            f"{_instead(kind, monoid.name)}"
        )
    return monoid


def _instead(kind: str, name: str) -> str:
    """The advice for a dtype that a monoid does not take."""
    if kind == "b":
        return "combine bools by 'and' or 'or', or count them in a Ref of integers"
    if kind == "c":
        return "complex numbers have no order: keep `abs(x)`, or real and imaginary parts, in Refs of their own"
    return f"compare first, and keep what the comparison gives in a Ref of bools: `accumulate(ref, i, x > 0, {name!r})`"


def batched_index(
    p: P, operands: ad.Values, dims: ad.BatchAxes, ref_dim: int | None, size: int
) -> tuple[P, list[Value], int]:
    """The index for the whole batch, and where what it reads or writes has the batch axis."""
    indexer, moved, dim = prims.batched_index(p.indexer, operands, dims, ref_dim, size)
    return replace(p, indexer=indexer), moved, dim


def batched_shares(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: P
) -> tuple[P, list[Value]]:
    """What all lanes accumulate, each its own share; into a Ref that is not batched, all shares combined."""
    ref, x, *index = operands
    ref_dim, x_dim, *index_dims = dims
    if ref_dim is not None or any(d is not None for d in index_dims):
        batched, moved, dim = batched_index(p, index, index_dims, ref_dim, size)
        return batched, [ref, prims.bdim_at(x, x_dim, size, dim), *moved]
    monoid = prims.MONOIDS[name_of_monoid(p)]
    if x_dim is None:
        return p, [ref, monoid.repeated(x, size), *index]
    return p, [ref, monoid.over_lanes(prims.move_axis(x, x_dim, 0)), *index]


def accumulator(ref: object) -> Value:
    """The accumulator that stands for a linear Ref under transposition."""
    assert isinstance(ref, ad.Accumulator), (
        "unreachable: a linear Ref is transposed through its accumulator"
    )
    return ref.value

"""What users call: make a Ref, read it, write it, accumulate into it, freeze it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from fiveloop.core import (
    OPS,
    ArrayLike,
    Indexer,
    ShapedArray,
    Tracer,
    Value,
    as_value,
    at_source,
    bind,
    bind1,
    call_user,
    cast_for_write,
    check_callable,
    current_source,
    is_eager,
    normalize,
    put_now,
    take_now,
    tree_map,
)
from fiveloop.state.errors import frozen
from fiveloop.state.monoids import monoid_of
from fiveloop.state.primitives.common import (
    AccumulateParams,
    IndexParams,
    SwapParams,
    accumulate_p,
    addupdate_p,
    get_p,
    swap_p,
)
from fiveloop.state.primitives.lifetime import NewRefParams, freeze_p, new_ref_p
from fiveloop.state.refs import EagerRef, Ref

T = TypeVar("T")


@overload
def new_ref(init: ArrayLike) -> Ref: ...


@overload
def new_ref(init: Any) -> Any: ...


def new_ref(init: Any) -> Any:
    """A mutable array that starts with the contents of `init`; a pytree of arrays gives a pytree of Refs.

    The Ref has the shape and dtype of `init`, and copies nothing until it is written.

    >>> r = new_ref([1.0, 2.0])
    >>> r[0][...] = 5.0
    >>> freeze(r[0])
    Array(5., dtype=float32)
    """
    return tree_map(_new_ref, init)


def _new_ref(init: Any) -> Value:
    if isinstance(init, Ref):
        raise TypeError(
            f"new_ref: init must be an array, got a Ref of type {init.aval}; to copy a Ref, read it: "
            f"new_ref(ref[...]){at_source(current_source())}"
        )
    return bind1(new_ref_p, as_value(init, "new_ref: init"), params=NewRefParams())


@overload
def freeze(ref: Ref) -> Value: ...


@overload
def freeze(ref: Any) -> Any: ...


def freeze(ref: Any) -> Any:
    """The array that a Ref holds, or a pytree of them; the Ref cannot be used afterwards.

    Raises FrozenRefError, with the place where it was frozen, if the Ref has been frozen before.
    """
    return tree_map(_freeze, ref)


def _freeze(ref: Any) -> Value:
    out = bind1(freeze_p, _check_ref("freeze", ref))
    if isinstance(ref, Tracer):
        ref._note = FrozenNote(current_source() or "an unknown place")
    return out


def get(ref: Any, index: Any = ...) -> Value:
    """What the Ref holds at an index: `ref[index]`."""
    if _is_now(ref):
        return ref.share() if index is ... else take_now(ref.array, index)
    indexer, operands = _index("get", ref, index)
    return bind1(get_p, ref, *operands, params=IndexParams(indexer))


def swap(ref: Any, index: Any, x: ArrayLike) -> Value:
    """Write `x` at an index, and give what was there before.

    `x` must broadcast to what the index selects, and its dtype must fit the Ref's.
    """
    indexer, operands = _index("swap", ref, index)
    value = _element(ref, indexer, x)
    _touch(ref)
    return bind1(swap_p, ref, value, *operands, params=SwapParams(indexer))


def set(ref: Any, index: Any, x: ArrayLike) -> None:
    """Write `x` at an index: `ref[index] = x`."""
    if _is_now(ref):
        _write_now(ref, index, x, "set")
        return
    indexer, operands = _index("set", ref, index)
    value = _element(ref, indexer, x)
    _touch(ref)
    bind(swap_p, ref, value, *operands, params=SwapParams(indexer, returns_old=False))


def addupdate(ref: Any, index: Any, x: ArrayLike) -> None:
    """Add `x` at an index: `ref[index] += x`; an index that names an element twice adds twice."""
    if _is_now(ref):
        _write_now(ref, index, x, "add")
        return
    indexer, operands = _index("addupdate", ref, index)
    value = _element(ref, indexer, x)
    _touch(ref)
    bind(addupdate_p, ref, value, *operands, params=IndexParams(indexer))


def accumulate(ref: Any, index: Any, x: ArrayLike, monoid: str = "add") -> None:
    """Combine `x` with what the Ref holds at an index, by a monoid; an index that names an element twice does it twice.

    The monoids are "add" (as `ref[index] += x`), "mul", "max" and "min", and for bools and integers, bit by bit,
    "and" and "or". Accumulations by one monoid commute. Of equal extremes the first keeps the derivative.

    >>> r = new_ref([1.0, 5.0, 2.0])
    >>> accumulate(r, [0, 1, 0], [3.0, 4.0, 7.0], "max")
    >>> r[...]
    Array([7., 5., 2.], dtype=float32)
    """
    monoid_of(monoid, _check_ref("accumulate", ref).aval)
    if monoid == "add":
        addupdate(ref, index, x)
    elif _is_now(ref):
        _write_now(ref, index, x, monoid)
    else:
        indexer, operands = _index("accumulate", ref, index)
        value = _element(ref, indexer, x)
        _touch(ref)
        bind(accumulate_p, ref, value, *operands, params=AccumulateParams(indexer, monoid))


def run_state(f: Callable[[Any], None]) -> Callable[[Any], Any]:
    """A function of values from one that works on Refs: Refs are made, `f` is run on them, they are frozen.

    >>> def double(r):
    ...     r[...] = r[...] * 2.0
    >>> run_state(double)(3.0)
    Array(6., dtype=float32)
    """

    check_callable("run_state", f)

    def run(init: Any) -> Any:
        refs = new_ref(init)
        out: object = call_user("run_state: the function", "(refs)", f, refs)
        if out is not None:
            raise TypeError(
                f"run_state: the function works on its Refs and must return None, got {out!r}"
                f"{at_source(current_source())}"
            )
        return freeze(refs)

    return run


@dataclass(frozen=True)
class _ReadNote:
    """On a value: it was just read from `ref` at `index`, when the Ref was at `version`."""

    ref: Value
    index: Any
    version: object

    def inplace_add(self, value: Value, x: Any) -> Value:
        """The sum, marked as an accumulation if it is written back at once."""
        out: Value = OPS["add"](value, x)
        if out.aval is value.aval:
            out._note = _SumNote(self, x)
        return out


@dataclass(frozen=True)
class _SumNote:
    """On a value: it is what was read plus `x`."""

    read: _ReadNote
    x: Any

    def inplace_add(self, value: Value, x: Any) -> Value:
        """A plain sum: more than one addition is no single accumulation."""
        return OPS["add"](value, x)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FrozenNote:
    """On a traced Ref: it has been frozen, at this place."""

    where: object

    def inplace_add(self, value: Value, x: Any) -> Value:
        """Refused: the Ref is at its end."""
        raise frozen(value.aval, self.where)


class _Version:
    """The state of a Ref between two writes, as far as the trace that holds it can tell."""

    def inplace_add(self, value: Value, x: Any) -> Value:
        """Refused, as any arithmetic on a Ref itself."""
        return OPS["add"](value, x)  # type: ignore[no-any-return]


def get_item(ref: Any, index: Any) -> Value:
    """`ref[index]`, marked so that `ref[index] += x` is one accumulation."""
    _check_ref("get", ref)
    if not isinstance(ref._note, _Version):
        ref._note = _Version()
    out = get(ref, index)
    out._note = _ReadNote(ref, index, ref._note)
    return out


def set_item(ref: Any, index: Any, x: Any) -> None:
    """`ref[index] = x`, or the last part of `ref[index] += x`."""
    note = getattr(x, "_note", None)
    if isinstance(note, _SumNote) and _is_current(note.read, ref, index):
        addupdate(ref, index, note.x)
    else:
        set(ref, index, x)


def _is_current(read: _ReadNote, ref: Value, index: Any) -> bool:
    return read.ref is ref and read.index is index and read.version is ref._note


def _is_now(ref: Any) -> bool:
    """Whether a Ref exists and nothing is being traced, so that its array is read and replaced at once."""
    return type(ref) is EagerRef and is_eager()


def _write_now(ref: EagerRef, index: Any, x: Any, kind: str) -> None:
    """Combine a value into what the Ref holds: in place, if nobody else has it."""
    old = ref.array
    new = put_now(old, index, x, kind, donate=not ref.is_shared)
    ref.write_back(new, shared=new is old or new is x)


def _touch(ref: Value) -> None:
    ref._note = None


def _check_ref(what: str, ref: Any) -> Value:
    if not isinstance(ref, Ref):
        raise TypeError(
            f"{what}: expected a Ref, got {ref!r} of type {type(ref).__name__}; make one with new_ref"
            f"{at_source(current_source())}"
        )
    if isinstance(ref._note, FrozenNote):
        raise frozen(ref.aval, ref._note.where)
    return ref


def _index(what: str, ref: Any, index: Any) -> tuple[Indexer, Sequence[Value]]:
    return normalize(_check_ref(what, ref).shape, index)


def _element(ref: Value, indexer: Indexer, x: Any) -> Value:
    return cast_for_write(ShapedArray(indexer.result_shape, ref.dtype), indexer.result_shape, x)

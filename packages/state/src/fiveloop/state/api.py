"""The public functions: make a Ref, read it, write it, accumulate into it, freeze it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeGuard, overload

import numpy as np

from fiveloop.core import arrays, ir, prims, pytree, stop_gradient, trace, transforms, util
from fiveloop.core.api import flatten
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import access, eager, parse
from fiveloop.core.ir.indexer import Indexer
from fiveloop.core.util import T
from fiveloop.state import primitives, views
from fiveloop.state.errors import frozen, not_frozen
from fiveloop.state.refs import ACCESS, EagerRef, FrozenNote, Ref


@overload
def new_ref(init: ArrayLike, *, differentiable: bool = True) -> Ref: ...
@overload
def new_ref(init: T, *, differentiable: bool = True) -> T: ...
def new_ref(init: Any, *, differentiable: bool = True) -> Any:
    """A mutable array that starts with the contents of `init`; a pytree of arrays gives a pytree of Refs.

    The Ref has the shape and dtype of `init`, which is copied at the first write. If it is not `differentiable`,
    values written to it and values read from it have no derivative, as after `stop_gradient`.

    >>> r = new_ref([1.0, 2.0])
    >>> r[0][...] = 5.0
    >>> freeze(r[0])
    Array(5., dtype=float32)
    """
    if not isinstance(differentiable, bool):
        prims.bad_type(f"new_ref: differentiable must be a bool, got {differentiable!r}")
    values, tree = flatten.flatten_values(init, "new_ref: init")
    return tree.unflatten([_new_ref(differentiable, x) for x in values])


def empty_ref(shape: Any, dtype: Any = np.float32) -> Ref:
    """A Ref of a shape and dtype, for contents that are to be written; they are zero until then.

    >>> empty_ref((2,))
    Ref([0. 0.], dtype=float32)
    """
    dims = prims.canonical_shape("empty_ref", shape)
    aval = ir.ShapedArray(dims, prims.canonical_dtype("empty_ref", dtype))
    return new_ref(transforms.zeros_of(aval))


def _new_ref(differentiable: bool, x: Value) -> Value:
    if isinstance(x, Ref):
        prims.bad_type(
            f"new_ref: init must be an array, got a Ref of type {x.aval}; to copy a Ref, read it: "
            "new_ref(ref[...])"
        )
    held = x if differentiable else stop_gradient(x)
    return primitives.ref_of(held, differentiable=differentiable)


@overload
def freeze(ref: Ref) -> Value: ...
@overload
def freeze(ref: T) -> T: ...
def freeze(ref: Any) -> Any:
    """The final contents of a Ref, or of a pytree of Refs; a frozen Ref cannot be used any more.

    Raises FrozenRefError, with the line where it was frozen, if the Ref has been frozen before.

    >>> r = new_ref(np.zeros(2))
    >>> r[1] = 3.0
    >>> freeze(r)
    Array([0., 3.], dtype=float64)
    """
    refs, tree = flatten.flatten_located(ref, what="freeze: ref")
    return tree.unflatten([_freeze(x) for x in refs])


def _freeze(ref: Any) -> Value:
    base = _check_ref("freeze", ref)
    if base is not ref:
        raise not_frozen(
            ref.aval, "a part of another", "freeze that one, or read the part: `part[...]`"
        )
    if flatten.is_given(base):
        raise not_frozen(
            ref.aval,
            "made outside of the traced function",
            "freeze it there, and read it here: `ref[...]`",
        )
    out = trace.bind1(primitives.freeze_p, base)
    if isinstance(base, trace.Tracer):
        base._note = FrozenNote(trace.current_source() or "an unknown place")
    return out


def get(ref: Any, index: Any = ...) -> Value:
    """Read a Ref at an index: `ref[index]`, an array of the index's shape and the Ref's dtype.

    Raises IndexError if a known index is out of bounds; a traced one is clamped.

    >>> get(new_ref(np.arange(3)), 1)
    Array(1, dtype=int64)
    """
    chosen = _chosen("get", ref, index)
    if chosen is not None and not chosen.is_known:
        raise chosen.unreadable()
    if isinstance(ref, access.View):
        base, place, layouts = views.through(ref, index)
        return views.laid(_read(base, place), layouts)
    return _read(ref, index)


def _read(ref: Any, index: Any) -> Value:
    """The contents of a Ref, which is no view, at an index."""
    if _is_now(ref):
        with ref.turn:
            return ref.share() if index is ... else eager.take_now(ref.contents(), index)
    indexer, operands = parse.normalize(ref.shape, index)
    return primitives.read(ref, indexer, operands)


def swap(ref: Any, index: Any, x: ArrayLike) -> Value:
    """Write `x` at an index, and return the value that was there.

    A traced index that is out of bounds is clamped for the read, and nothing is written there. `x` must broadcast to
    the shape that the index selects (ValueError), and its dtype must fit the Ref's (TypeError).

    >>> r = new_ref(np.arange(3))
    >>> swap(r, 0, 7), r[...]
    (Array(0, dtype=int64), Array([7, 1, 2], dtype=int64))
    """
    chosen = _chosen("swap", ref, index)
    if chosen is not None and not chosen.is_known:
        raise chosen.unreadable()
    base, place, layouts = views.through(ref, index)
    if _is_now(base):
        with base.turn:
            base.turn.claim()
            _, at, x = views.written(ref, index, x)  # may read what is held
            old, new = eager.swap_now(base.contents(), place, at, x, donate=not base.is_shared)
            base.write_back(new)
        return views.laid(old, layouts)
    _, at, x = views.written(ref, index, x)
    indexer, operands = parse.normalize(base.shape, place)
    target, index_of_write = _write_at(base, at)
    value = _element(base, target, x)
    _touch(base)
    if not indexer.dynamic_axes and not target.dynamic_axes:
        params = primitives.SwapParams(indexer)
        return views.laid(trace.bind1(primitives.swap_p, base, value, params=params), layouts)
    old = primitives.read(base, indexer, operands)
    primitives.write(base, value, target, index_of_write)
    return views.laid(old, layouts)


def set(ref: Any, index: Any, x: ArrayLike) -> None:
    """Write `x` at an index: `ref[index] = x`.

    `x` must broadcast to what the index selects (ValueError), and its dtype must fit the Ref's (TypeError).

    >>> r = new_ref(np.arange(3))
    >>> set(r, slice(1, None), 5)
    >>> r[...]
    Array([0, 5, 5], dtype=int64)
    """
    chosen = _chosen("set", ref, index)
    if chosen is not None and (not chosen.is_known or chosen.fits(x)):
        base = access.base_of(ref)
        with base.turn if _is_now(base) else nullcontext():  # reading and writing are one
            if _is_now(base):
                base.turn.claim()
            set(chosen.part, ..., chosen.written(x))
        return
    _write(ref, index, x)


def addupdate(ref: Any, index: Any, x: ArrayLike) -> None:
    """Add `x` at an index: `ref[index] += x`; an index that names an element twice adds twice.

    `x` must broadcast to what the index selects (ValueError), and its dtype must fit the Ref's (TypeError).

    >>> r = new_ref(np.zeros(3))
    >>> addupdate(r, np.array([0, 2, 0]), 1.0)
    >>> r[...]
    Array([2., 0., 1.], dtype=float64)
    """
    _combine("addupdate", ref, index, x, prims.MONOIDS["add"])


def add_to_spans(ref: Value, x: Value, spans: Sequence[tuple[Any, int, int]] | None = None) -> None:
    """Add `x` to the part of a Ref that begins, of each axis, at a start and has a size and a step; or to all of it."""
    addupdate(ref, ... if spans is None else tuple(parse.ds(*span) for span in spans), x)


def accumulate(ref: Any, index: Any, x: ArrayLike, monoid: str = "add") -> None:
    """Combine `x` with the contents of a Ref at an index, by a monoid; an element that the index names twice is
    combined twice.

    The monoids are "add" (as `ref[index] += x`), "mul", "max" and "min", and for bools and integers, bit by bit,
    "and" and "or". Accumulations by one monoid commute. Among equal extremes, the first one gets the derivative.

    >>> r = new_ref(np.array([1.0, 5.0, 2.0]))
    >>> accumulate(r, np.array([0, 1, 0]), np.array([3.0, 4.0, 7.0]), "max")
    >>> r[...]
    Array([7., 5., 2.], dtype=float64)
    """
    _check_ref("accumulate", ref)
    combining = primitives.monoid_of(monoid, ref.aval)
    _combine("accumulate", ref, index, x, combining)


ACCESS.update(get=get, set=set, swap=swap, addupdate=addupdate)


@overload
def run_state(f: Callable[[Ref], None]) -> Callable[[ArrayLike], Value]: ...
@overload
def run_state(f: Callable[[T], None]) -> Callable[[object], pytree.Pytree]: ...
def run_state(f: Callable[[Any], None]) -> Callable[[Any], Any]:
    """A function that makes Refs of its argument, runs `f` on them, and returns their contents; `f` returns None.

    >>> def double(r):
    ...     r[...] = r[...] * 2.0
    >>> run_state(double)(3.0)
    Array(6., dtype=float32)
    """

    flatten.check_callable("run_state", f)

    def run(init: Any) -> Any:
        refs = new_ref(init)
        out: object = flatten.call_user("run_state: the function", "(refs)", f, refs)
        if out is not None:
            prims.bad_type(
                f"run_state: the function works on its Refs and must return None, got {out!r}"
            )
        return freeze(refs)

    return run


@dataclass(frozen=True)
class _ReadNote:
    """On a value: it was just read from `ref` at `index`, when `version` had been written so often."""

    ref: Value
    index: Any
    version: _Version
    writes: int
    chosen: views.Masked | None

    @property
    def is_current(self) -> bool:
        """Whether this thread has not written the Ref since."""
        return self.version.writes == self.writes

    def inplace_add(self, value: Value, x: Any) -> Value:
        """The sum, marked as an accumulation if it is written back at once."""
        if self.chosen is not None:
            x = self.chosen.only(x)
        elif type(value) is arrays.Array and trace.is_fused():
            if isinstance(x, (np.ndarray, np.generic)) and not isinstance(x, (float, complex)):
                # The array may change before the sum is asked for.
                x = arrays.to_array(arrays.as_value(x, "the value added"))
            if _keeps_type(value.aval, x):
                later = arrays.Array()  # whose buffer is computed if it is asked for
                later._note = _SumNote(self, x, value)
                return later
        out: Value = arrays.OPS["add"](value, x)
        if out.aval is value.aval:
            out._note = _SumNote(self, x, value)
        return out

    def handed_on(self, value: Value) -> arrays.InplaceNote:
        """Still true: the value is no Ref."""
        return self


@dataclass(frozen=True)
class _SumNote:
    """On a value: it is what was read, `value`, plus `x`."""

    read: _ReadNote
    x: Any
    value: Value

    def computed(self) -> Value:
        """The sum, which was not written back."""
        with trace.use_trace(trace.EVAL):
            return arrays.OPS["add"](self.value, self.x)  # type: ignore[no-any-return]

    def inplace_add(self, value: Value, x: Any) -> Value:
        """A plain sum: more than one addition is no single accumulation."""
        return arrays.OPS["add"](value, x)  # type: ignore[no-any-return]

    def handed_on(self, value: Value) -> arrays.InplaceNote:
        """Still true: the value is no Ref."""
        return self


class _Version(threading.local):
    """How often a thread may have written a Ref; what others write comes between a read and a sum, or after both."""

    writes: int = 0

    def inplace_add(self, value: Value, x: Any) -> Value:
        """Refused, as any arithmetic on a Ref itself."""
        value._note = None
        value += x
        return value

    def handed_on(self, value: Value) -> _Version:
        """The Ref is written, or may be by the other program."""
        self.writes += 1
        return self


def _keeps_type(aval: ir.Aval, x: Any) -> bool:
    """Whether the sum of an array of a type and a value surely has that type, and can be made later."""
    if type(x) is arrays.Array and x.aval is aval:
        return True
    if aval.weak_type:
        return False
    if type(x) is arrays.Array:
        return x.dtype == aval.dtype and ir.broadcast_shapes(x.shape, aval.shape) == aval.shape
    kind = aval.dtype.kind
    return (type(x) is float and kind in "fc") or (
        type(x) is int and kind in "iufc" and 0 <= x < 128
    )


def _is_plain(ref: Any, index: Any) -> bool:
    """Whether a Ref exists, is whole, and is indexed without masks and arrays, where nothing is traced."""
    return type(ref) is EagerRef and trace.is_fused() and eager.is_plain(index)


def get_item(ref: Any, index: Any) -> Value:
    """`ref[index]`, marked so that `ref[index] += x` is one accumulation."""
    if _is_plain(ref, index):
        with ref.turn:
            now: Value = ref.share() if index is ... else eager.take_now(ref.contents(), index)
        now._note = _note_of(ref, ref, index, None)
        return now
    chosen = _chosen("get", ref, index)
    if chosen is not None and not chosen.is_known:
        return views.MaskedRead(chosen, _note_of(access.base_of(ref), ref, index, chosen))
    out = get(ref, index)
    out._note = _note_of(access.base_of(ref), ref, index, chosen)
    return out


def _note_of(base: Value, ref: Any, index: Any, chosen: views.Masked | None) -> _ReadNote:
    """A note that a Ref has just been read."""
    version = base._note
    if not isinstance(version, _Version):
        with _noting:
            version = base._note if isinstance(base._note, _Version) else _Version()
            base._note = version
    return _ReadNote(ref, index, version, version.writes, chosen)


_noting = util.free_after_fork(threading.RLock())  # collected objects may read Refs, too


def set_item(ref: Any, index: Any, x: Any) -> None:
    """`ref[index] = x`, or the last part of `ref[index] += x`."""
    if isinstance(x, views.MaskedSum):
        if not isinstance(x.read, _ReadNote) or not _is_current(x.read, ref, index):
            raise x.elsewhere()
        addupdate(ref, index, x.x)
        return
    note = getattr(x, "_note", None)
    if isinstance(note, _SumNote) and _is_current(note.read, ref, index):
        if _is_plain(ref, index):
            _write_now(ref, ref, index, note.x, prims.MONOIDS["add"])
        else:
            addupdate(ref, index, note.x)
    else:
        set(ref, index, x)


def _is_current(read: _ReadNote, ref: Value, index: Any) -> bool:
    same = read.index is index or eager.is_same_plain(read.index, index)
    return same and read.ref is ref and read.is_current


def _is_now(ref: Any) -> TypeGuard[EagerRef]:
    """Whether a Ref exists and nothing is being traced, so that its array is read and replaced at once."""
    return type(ref) is EagerRef and trace.is_eager()


def _write_now(base: EagerRef, ref: Any, index: Any, x: Any, monoid: prims.Monoid | None) -> None:
    """Combine a value into what a Ref, or a part of it, holds: in place, if nobody else has it."""
    kind = "set" if monoid is None else monoid.name
    with base.turn:
        base.turn.claim()
        place = index
        if ref is not base:
            _, place, x = views.written(ref, index, x, monoid)  # may read what is held
        old = base.contents()
        new = eager.put_now(old, place, x, kind, donate=not base.is_shared)
        base.write_back(new, shared=new is old or new is x)


def _combine(what: str, ref: Any, index: Any, x: Any, monoid: prims.Monoid) -> None:
    """Combine a value with what a Ref holds, where a mask holds, if the index has one."""
    chosen = _chosen(what, ref, index)
    if chosen is not None and (not chosen.is_known or chosen.fits(x)):
        ref, index, x = chosen.part, ..., chosen.or_neutral(x, monoid)
    _write(ref, index, x, monoid)


def _write(ref: Any, index: Any, x: Any, monoid: prims.Monoid | None = None) -> None:
    """Write a value at an index, or combine it with what is there by a monoid."""
    base = access.base_of(ref)
    if _is_now(base):
        _write_now(base, ref, index, x, monoid)
        return
    if ref is not base:
        base, index, x = views.written(ref, index, x, monoid)
    indexer, operands = _write_at(base, index)
    value = _element(base, indexer, x)
    _touch(base)
    if monoid is None:
        primitives.write(base, value, indexer, operands)
    else:
        primitives.combine(base, value, indexer, operands, monoid.name)


def _touch(ref: Value) -> None:
    if ref._note is not None:
        ref._note = ref._note.handed_on(ref)


def _check_ref(what: str, ref: Any) -> Value:
    """The Ref that something is, or is a part of."""
    if not isinstance(ref, Ref):
        prims.bad_type(
            f"{what}: expected a Ref, got {ref!r} of type {type(ref).__name__}; make one with new_ref"
        )
    base = access.base_of(ref)
    if isinstance(base._note, FrozenNote):
        raise frozen(base.aval, base._note.where)
    return base


def _chosen(what: str, ref: Any, index: Any) -> views.Masked | None:
    """The part and the mask, if an index is a mask; something that is no Ref is refused."""
    _check_ref(what, ref)
    return views.masked(ref, index) if access.has_mask(index) else None


def _write_at(base: Value, place: Any) -> tuple[Indexer, list[Value]]:
    """Where to write: what lies outside at run time is left out."""
    indexer, operands = parse.normalize(base.shape, place)
    return indexer.dropping(), operands


def _element(ref: Value, indexer: Indexer, x: Any) -> Value:
    shape = indexer.result_shape
    value = access.cast_for_write(ir.ShapedArray(shape, ref.dtype), shape, x)
    return value if ref.aval.differentiable else stop_gradient(value)

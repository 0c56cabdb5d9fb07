"""Views: parts of a Ref that are Refs, made by `ref.at[index]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from fiveloop.core import Value, is_concrete
from fiveloop.core.engine import (
    Indexer,
    Normal,
    View,
    at_source,
    base_of,
    compose,
    current_source,
    has_mask,
    masked_place,
    normalize,
)
from fiveloop.core.extend import Aval, ShapedArray
from fiveloop.state.avals import AbstractRef
from fiveloop.state.refs import EagerRef, FrozenNote, Ref

_INSTEAD = {
    "get": "ref[index]",
    "set": "ref[index] = x",
    "add": "ref[index] += x",
    "multiply": "ref[index] *= x",
}
"""What is written for the methods of `x.at[index]` of an array."""


class RefView(View, Ref):
    """A part of a Ref. It is a Ref: what is written to it is written to the Ref that it is a part of."""

    __slots__ = ("_aval",)

    def __init__(self, base: Value, indexer: Indexer, operands: Sequence[Value]) -> None:
        super().__init__(base, indexer, operands)
        self._aval = AbstractRef(ShapedArray(indexer.result_shape, base.dtype))

    @property
    def aval(self) -> Aval:
        return self._aval

    def own_array(self) -> None:
        """Refused: a program that runs takes the Ref that this is a part of."""
        self.check_operand()

    if not TYPE_CHECKING:  # a type checker is to see what exists

        def __getattr__(self, name: str) -> NoReturn:
            if name not in _INSTEAD:
                super().__getattr__(name)
            raise AttributeError(
                f"a part of a Ref, `ref.at[index]`, has no attribute {name!r}: write `{_INSTEAD[name]}`"
                f"{at_source(current_source())}",
                name=name,
                obj=self,
            )

    def __iadd__(self, x: Any) -> NoReturn:
        raise TypeError(
            f"a Ref of type {self.aval} is no number to add to: write `ref[index] += x`, or, on a part, `part[...] += "
            f"x`{at_source(current_source())}"
        )

    def __repr__(self) -> str:
        names = [str(i) if not i.ndim else str(i.aval) for i in self.operands]
        return f"{self.base!r}.at[{self.indexer.pretty(names, self.base.shape)}]"


class At:
    """What `ref.at` is: index it to name a part of the Ref."""

    __slots__ = ("_ref",)

    def __init__(self, ref: Value) -> None:
        self._ref = ref

    def __getitem__(self, index: Any) -> Ref:
        _check_known(self._ref, index)
        base, place = through(self._ref, index)
        _check_alive(base)
        return RefView(base, *normalize(base.shape, place))

    def __setitem__(self, index: Any, x: Any) -> NoReturn:
        raise TypeError(
            f"`ref.at` names parts of a Ref of type {self._ref.aval}, and is not written: write `ref[index] = x`"
            f"{at_source(current_source())}"
        )


def _check_known(ref: Value, index: Any) -> None:
    """Raise if an index has a mask that is known only at run time: the size of a part is static."""
    place = masked_place(ref.shape, index) if has_mask(index) else None
    if place is not None and not is_concrete(place.mask):
        raise TypeError(
            f"`ref.at[mask]`: expected a mask whose elements are known to name a part of {ref.aval}, got the traced "
            f"mask {place.mask!r}: the size of a part must be static; write at the mask, `ref[mask] = x` or "
            f"`ref[mask] += x`{at_source(current_source())}"
        )


def _check_alive(base: Value) -> None:
    """Raise if a Ref has been frozen."""
    if isinstance(base, EagerRef):
        _ = base.array
    elif isinstance(base._note, FrozenNote):
        base._note.handed_on(base)


def through(ref: Value, index: Any) -> tuple[Value, Any]:
    """A Ref and an index; of a view, the Ref that it is a part of, and where in that."""
    base = base_of(ref)
    if not isinstance(ref, View):
        return base, index
    if index is ...:
        return base, Normal(ref.indexer, list(ref.operands))
    inner = normalize(ref.shape, index)
    return base, Normal(*compose(base.shape, ref.indexer, ref.operands, *inner))

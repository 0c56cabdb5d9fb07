"""Values that take no attributes, and what sets those that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fiveloop.core import errors, ir
from fiveloop.core.arrays import array


def setter(kind: type[array.Value], name: str) -> Callable[[Any, Any], None]:
    """What sets an attribute of a class, without asking its `__setattr__`."""
    return vars(kind)[name].__set__  # type: ignore[no-any-return]  # of a slot, by definition


class Fixed(array.Value):
    """A value whose class is no name that users know: it says itself that it takes no attributes.

    That takes time: what is made often sets its own by `setter`.
    """

    __slots__ = ()

    def __setattr__(self, name: str, x: Any) -> None:
        try:
            object.__setattr__(self, name, x)
        except AttributeError:
            told = (
                "; what a Ref holds is written so: `ref[...] = x`" if self.aval.accumulates else ""
            )
            raise AttributeError(
                f"a value of type {self.aval} has no attribute {name!r} that can be set{told}"
                f"{errors.at_source(ir.user_source())}",
                name=name,
                obj=self,
            ) from None

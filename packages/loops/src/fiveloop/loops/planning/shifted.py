"""What a loop carried, read from the stack of what its steps made of it: one slot further on, with the start in front.

The residual `carry` of step i is slot i - 1 of the stack of new carries, and the first carry at step 0. Over all steps
that is the stack, moved on by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import is_scalar, real, static_slice
from fiveloop.core.extend import (
    Atom,
    Eqn,
    Literal,
    Var,
    bitwise_and,
    broadcast_in_dim,
    concatenate,
    convert,
    reshape,
    select,
    stage_closed,
)
from fiveloop.loops.planning.hoist import renamed


@dataclass(frozen=True, slots=True)
class Shifted:
    """A stack, what stands in front of it (or behind, of a loop that counts down), and the read of a slot."""

    read: Eqn
    start: Atom
    down: bool

    @property
    def ref(self) -> Atom:
        """The Ref that holds the stack."""
        return self.read.invars[0]

    def array(self, stack: Atom, start: Atom, result: Atom, after: list[Eqn]) -> Atom:
        """The stack moved on, once the loop has given a result, for which there is no room before; in `after`."""

        def moved(stack: Value, start: Value, result: Value) -> list[Value]:
            start = _once_there(start, stack[0], result)
            first = broadcast_in_dim(start, (1, *start.shape), range(1, start.ndim + 1))
            parts = [stack[1:], first] if self.down else [first, stack[:-1]]
            return [concatenate(parts)]

        atoms = [stack, start, result]
        made = stage_closed(moved, [a.aval.strong() for a in atoms])
        outside: dict[Var, Atom] = dict(zip(made.invars, atoms, strict=True))
        after += [renamed(e, outside) for e in made.eqns]
        (out,) = made.outvars
        return outside[out] if isinstance(out, Var) else out


def _once_there(x: Value, other: Value, result: Value) -> Value:
    """A value that is not to be used before a result is there: as if an other could be taken for what that holds.

    Its lowest bit is never more than one, but no compiler looks for that.
    """
    first = reshape(static_slice(result, [0] * result.ndim, [1] * result.ndim), ())
    number = real(first) if first.dtype.kind == "c" else first
    bit = bitwise_and(convert(number, np.int32), np.int32(1))
    return select(bit > 1, other, x)


def shifted(
    x: Var, made: Mapping[Var, Eqn], body: Jaxpr, num_consts: int, nsteps: int
) -> Shifted | None:
    """The stack that a value is read from, if it is what a loop carried."""
    chosen = _made(x, made, "select")
    if chosen is None:
        return None
    pred, start, read = chosen.invars
    got = _made(read, made, "get")
    if got is None or len(got.invars) != 2:
        return None
    fixed = isinstance(start, Literal) or start in body.invars[1 : 1 + num_consts]
    spread = _made(pred, made, "broadcast_in_dim")
    first = _made(spread.invars[0] if spread is not None else pred, made, "equal")
    if not fixed or first is None or first.invars[0] is not body.invars[0]:
        return None
    for down, ends, step in (
        (False, ("maximum", 0), "sub"),
        (True, ("minimum", nsteps - 1), "add"),
    ):
        name, end = ends
        place = _made(got.invars[1], made, name)
        moved = _made(place.invars[0], made, step) if place is not None else None
        if place is None or moved is None or moved.invars[0] is not body.invars[0]:
            continue
        if [_number(a) for a in (place.invars[1], moved.invars[1], first.invars[1])] == [
            end,
            1,
            end,
        ]:
            return Shifted(got, start, down)
    return None


def _made(x: Atom, made: Mapping[Var, Eqn], name: str) -> Eqn | None:
    eqn = made.get(x) if isinstance(x, Var) else None
    return eqn if eqn is not None and eqn.primitive.name == name else None


def _number(a: Atom) -> int | None:
    if not isinstance(a, Literal) or not is_scalar(a):
        return None
    return int(a.value.host)  # type: ignore[attr-defined]  # a scalar has its number

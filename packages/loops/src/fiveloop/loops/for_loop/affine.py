"""Integers of a body that are `step * i + start` in its counter `i`: at which places a loop touches a Ref."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import is_scalar
from fiveloop.core.extend import Atom, Eqn, Literal, Var


@dataclass(frozen=True, slots=True)
class Affine:
    """The number `step * i + start`."""

    step: int
    start: int

    def ends(self, nsteps: int) -> tuple[int, int]:
        """The least and the greatest of these numbers in a loop of so many steps."""
        last = self.start + self.step * max(nsteps - 1, 0)
        return min(self.start, last), max(self.start, last)

    def at(self, i: Value) -> Value | int:
        """The number for a counter."""
        if not self.step:
            return self.start
        scaled = i if self.step == 1 else i * self.step
        return scaled + self.start if self.start else scaled


def affine_numbers(body: Jaxpr, nsteps: int) -> dict[Var, Affine]:
    """The integers of a body that are affine in its counter; none that leaves the range of its dtype."""
    found = {body.invars[0]: Affine(1, 0)}
    for eqn in body.eqns:
        rule = _RULES.get(eqn.primitive.name)
        if rule is None or len(eqn.outvars) != 1:
            continue
        aval = eqn.outvars[0].aval
        operands = [affine_number(a, found) for a in eqn.invars]
        if aval.shape or aval.dtype.kind not in "iu" or None in operands:
            continue
        number = rule([x for x in operands if x is not None], eqn, nsteps)
        limits = np.iinfo(aval.dtype)
        if number is not None:
            low, high = number.ends(nsteps)
            if limits.min <= low and high <= limits.max:
                found[eqn.outvars[0]] = number
    return found


def affine_number(a: Atom, known: dict[Var, Affine]) -> Affine | None:
    """An atom as such a number, if it is one."""
    if isinstance(a, Var):
        return known.get(a)
    assert isinstance(a, Literal), "unreachable: an atom is a variable or a literal"
    if not is_scalar(a) or a.aval.dtype.kind not in "iu":
        return None
    return Affine(0, int(a.value.host))  # type: ignore[attr-defined]  # a scalar has its number


Rule = Callable[[Sequence[Affine], Eqn, int], Affine | None]


def _mul(xs: Sequence[Affine], eqn: Eqn, nsteps: int) -> Affine | None:
    x, y = xs if not xs[1].step else xs[::-1]
    return None if y.step else Affine(x.step * y.start, x.start * y.start)


def _resolve_index(xs: Sequence[Affine], eqn: Eqn, nsteps: int) -> Affine | None:
    """An index that is in range is its own position."""
    p: Any = eqn.params
    if not isinstance(p.size, int) or not isinstance(p.window, int | None):
        return None
    low, high = xs[0].ends(nsteps)
    fits = p.window is None or high <= p.size - p.window
    return xs[0] if low >= 0 and fits else None


_RULES: dict[str, Rule] = {
    "add": lambda xs, e, n: Affine(xs[0].step + xs[1].step, xs[0].start + xs[1].start),
    "sub": lambda xs, e, n: Affine(xs[0].step - xs[1].step, xs[0].start - xs[1].start),
    "neg": lambda xs, e, n: Affine(-xs[0].step, -xs[0].start),
    "mul": _mul,
    "convert": lambda xs, e, n: xs[0],
    "resolve_index": _resolve_index,
}

"""Integers of a body: their ranges, which are affine in the loop's counter, and which are equal.

All three are facts of one domain, `Integer`. What a primitive makes of the facts about its operands is a cell of the
column `integer`; of a primitive without one nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import floordiv, rshift
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core import Jaxpr, Value, ir, prims, rules
from fiveloop.core.closed_call import closed_call_p
from fiveloop.core.dataclass import dataclass
from fiveloop.core.ir.indexer import Span
from fiveloop.loops.analysis import accesses
from fiveloop.loops.primitives import cond, for_loop


@dataclass(frozen=True, slots=True)
class Affine:
    """The number `step * i + start` of the counter `i`."""

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


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from `low` to `high`; `place` says how it follows from the counter, if it is affine in that."""

    low: int
    high: int
    place: Affine | None = None

    @property
    def last(self) -> int:
        """An affine number in the last step; in the first one it is where it starts."""
        assert self.place is not None, "unreachable: asked for only where it is affine"
        return self.low + self.high - self.place.start

    @property
    def interval(self) -> Integer:
        """The same without what it has to do with the counter."""
        return Integer(self.low, self.high)


Integers = Mapping[ir.Var, Integer]


IntegerRule: TypeAlias = Callable[[Sequence["Integer"], Any], "Integer | None"]
"""What an equation makes of operands that are known; the last argument are its params."""


integer_rules: rules.RuleTable[IntegerRule] = rules.RuleTable(
    "integer", default="nothing is known", by="define_integer"
)


def define_integer(prim: ir.Primitive[Any], rule: IntegerRule) -> None:
    """Say what a primitive makes of integers, of which a range is known, or a place affine in the counter."""
    integer_rules.define(prim, rule)


def counter(nsteps: int) -> Integer:
    """The counter of a loop of so many steps."""
    return Integer(0, max(nsteps - 1, 0), Affine(1, 0))


def integers_of_step(body: Jaxpr, nsteps: int) -> Integers:
    """What is known of the integers of a loop's body from its counter alone."""
    return integers(body, [counter(nsteps)])


@ir.once_per(lambda jaxpr, known: (jaxpr, *known))
def integers(jaxpr: Jaxpr, known: Sequence[Integer | None]) -> Integers:
    """What is known of the integers of a jaxpr, of the first of whose inputs some are `known`; remembered on it."""
    found = {v: x for v, x in zip(jaxpr.invars, known, strict=False) if x is not None}
    for eqn in jaxpr.eqns:
        number = _made_by(eqn, found)
        if number is not None:
            found[eqn.outvars[0]] = number
    return found


def _made_by(eqn: ir.Eqn, known: Integers) -> Integer | None:
    """The integer that an equation computes; None if it may leave the range of its dtype."""
    rule = integer_rules.find(eqn.primitive)
    if rule is None or len(eqn.outvars) != 1:
        return None
    aval = eqn.outvars[0].aval
    if aval.dtype.kind not in "iu" or aval.shape:
        return None
    operands = [integer(a, known) or of_dtype(a.aval) for a in eqn.invars]
    given = [x for x in operands if x is not None]
    number = rule(given, eqn.params) if len(given) == len(operands) else None
    limits = np.iinfo(aval.dtype)
    if number is None or not limits.min <= number.low <= number.high <= limits.max:
        return None
    return number if number.interval != of_dtype(aval) else None


def of_dtype(aval: ir.Aval) -> Integer | None:
    """What is known of an integer by its dtype alone."""
    if aval.dtype.kind not in "iu":
        return None
    limits = np.iinfo(aval.dtype)
    return Integer(int(limits.min), int(limits.max))


def literal(a: ir.Atom) -> int | None:
    """The integer that a literal is; None for any other operand."""
    if isinstance(a, ir.Var) or not ir.is_scalar(a) or a.aval.dtype.kind not in "iub":
        return None
    return int(a.value.host)  # type: ignore[attr-defined]  # a scalar has its number


def integer(a: ir.Atom, known: Integers) -> Integer | None:
    """What is known of an operand."""
    if isinstance(a, ir.Var):
        is_flag = isinstance(a.aval, ir.ShapedArray) and a.aval.dtype.kind == "b"
        return known.get(a, Integer(0, 1) if is_flag else None)
    value = literal(a)
    return None if value is None else Integer(value, value, Affine(0, value))


def affine(a: ir.Atom, known: Integers) -> Affine | None:
    """How an operand follows from the counter, if it is affine in that."""
    found = integer(a, known)
    return found.place if found is not None else None


def _affine(step: int, start: int, last: int) -> Integer:
    """The number `step * i + start`, which is `last` in the last step."""
    return Integer(min(start, last), max(start, last), Affine(step, start))


def _add(xs: Sequence[Integer], p: Any) -> Integer:
    x, y = xs
    if x.place and y.place:
        return _affine(x.place.step + y.place.step, x.place.start + y.place.start, x.last + y.last)
    return Integer(x.low + y.low, x.high + y.high)


def _neg(xs: Sequence[Integer], p: Any) -> Integer:
    (x,) = xs
    place = Affine(-x.place.step, -x.place.start) if x.place else None
    return Integer(-x.high, -x.low, place)


def _mul(xs: Sequence[Integer], p: Any) -> Integer:
    x, y = xs
    if x.place and not x.place.step:
        x, y = y, x
    if x.place and y.place and not y.place.step:
        by = y.place.start
        return _affine(x.place.step * by, x.place.start * by, x.last * by)
    products = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    return Integer(min(products), max(products))


def _positive(rule: Callable[[Integer, Integer], Integer]) -> IntegerRule:
    """What becomes of two integers of which neither is negative, nor the second zero."""
    return lambda xs, p: rule(*xs) if xs[0].low >= 0 and xs[1].low > 0 else None


def _of_ends(rule: Callable[[int, int], int], least: int) -> IntegerRule:
    """What becomes of two integers of which the second is not below `least`, by a monotone rule."""

    def cell(xs: Sequence[Integer], p: Any) -> Integer | None:
        x, y = xs
        found = (
            [rule(a, b) for a in (x.low, x.high) for b in (y.low, y.high)] if y.low >= least else []
        )
        return Integer(min(found), max(found)) if found else None

    return cell


def _mod(xs: Sequence[Integer], p: Any) -> Integer | None:
    x, y = xs
    if y.low <= 0:
        return None
    return x if x.low >= 0 and x.high < y.low else Integer(0, y.high - 1)


def _masked(xs: Sequence[Integer], p: Any) -> Integer | None:
    masks = [x.high for x in xs if x.low >= 0]
    return Integer(0, min(masks)) if masks else None


def _maximum(xs: Sequence[Integer], p: Any) -> Integer:
    return Integer(max(x.low for x in xs), max(x.high for x in xs))


def _minimum(xs: Sequence[Integer], p: Any) -> Integer:
    return Integer(min(x.low for x in xs), min(x.high for x in xs))


def _clamp(xs: Sequence[Integer], p: Any) -> Integer:
    least, x, most = xs
    return _minimum([_maximum([x, least], p), most], p)


def _resolve_index(xs: Sequence[Integer], p: Any) -> Integer | None:
    """The elements at indices: negative indices count from the end; then indices are clamped to the range."""
    if not isinstance(p.size, int) or not isinstance(p.window, int | None):
        return None
    (x,) = xs
    parts = [Integer(max(x.low, 0), x.high)] if x.high >= 0 else []
    if x.low < 0:
        parts.append(Integer(x.low + p.size, min(x.high, -1) + p.size))
    found = Integer(min(part.low for part in parts), max(part.high for part in parts))
    if p.window is not None:
        last = p.size - p.window
        found = _clamp([Integer(0, 0), found, Integer(last, last)], p)
    return x if x.low >= 0 and found == x.interval else found


_CELLS: dict[ir.Primitive[Any], IntegerRule] = {
    prims.add_p: _add,
    prims.sub.prim: lambda xs, p: _add([xs[0], _neg(xs[1:], p)], p),
    prims.neg_p: _neg,
    prims.mul.prim: _mul,
    prims.div.prim: _positive(lambda x, y: Integer(x.low // y.high, x.high // y.low)),
    prims.rem.prim: _positive(lambda x, y: Integer(0, min(x.high, y.high - 1))),
    prims.floor_div.prim: _of_ends(floordiv, 1),
    prims.mod.prim: _mod,
    prims.bitwise_and.prim: _masked,
    prims.shift_right_arithmetic.prim: _of_ends(rshift, 0),
    prims.maximum.prim: _maximum,
    prims.minimum.prim: _minimum,
    prims.clamp_p: _clamp,
    prims.select_p: lambda xs, p: Integer(min(x.low for x in xs[1:]), max(x.high for x in xs[1:])),
    prims.convert_p: lambda xs, p: xs[0],
    prims.resolve_index_p: _resolve_index,
}
for _prim, _rule in _CELLS.items():
    define_integer(_prim, _rule)


def is_resolved(eqn: ir.Eqn, known: Integers) -> bool:
    """Whether an equation resolves an index that is its own position."""
    if eqn.primitive is not prims.resolve_index_p or eqn.invars[0].aval is not eqn.outvars[0].aval:
        return False
    given = integer(eqn.invars[0], known)
    if given is None or given.low < 0:
        return False
    found = _resolve_index([given], eqn.params)
    return found is not None and found.interval == given.interval


def is_in_range(eqn: ir.Eqn, known: Integers) -> bool:
    """Whether an equation resolves an index that is its own position, and on the axis; not all are clamped here."""
    if not is_resolved(eqn, known):
        return False
    found = integer(eqn.invars[0], known)
    return found is not None and found.high < eqn.params.size


def keep_in_range(body: Jaxpr, nsteps: int) -> Jaxpr:
    """The body of a loop of so many steps, in which what cannot be out of bounds drops nothing: it needs no masks."""
    return _marked(body, [counter(nsteps)])


def _marked(jaxpr: Jaxpr, given: Sequence[Integer | None]) -> Jaxpr:
    known = integers(jaxpr, given)
    eqns = [_marked_eqn(eqn, known) for eqn in jaxpr.eqns]
    same = all(a is b for a, b in zip(eqns, jaxpr.eqns, strict=True))
    return jaxpr if same else jaxpr.replace(eqns=eqns)


def _marked_eqn(eqn: ir.Eqn, known: Integers) -> ir.Eqn:
    """An indexing equation, without dropping if its positions are in range; or one with marked nested jaxprs."""
    p, given = eqn.params, [integer(a, known) for a in eqn.invars]
    index = accesses.index_rules.find(eqn.primitive)
    if index is not None and p.indexer.drops:
        indexer, shape = p.indexer, eqn.invars[0].aval.shape
        # A position of an array is counted already: a negative one does not count from the end any more.
        least = None if accesses.is_access(eqn) else 0
        extents = [e.extent if isinstance(e, Span) else 1 for e in indexer.entries]
        found = zip(indexer.dynamic_axes, given[-len(index(eqn)) :], strict=True)
        if all(fits(x, shape[k], extents[k], least) for k, x in found):
            return eqn.replace(params=replace(p, indexer=indexer.fitting()))
    elif eqn.primitive in (for_loop.for_p, closed_call_p, cond.cond_p):
        return _with_bodies(eqn, given)
    return eqn


def _with_bodies(eqn: ir.Eqn, given: Sequence[Integer | None]) -> ir.Eqn:
    """An equation with its nested jaxprs marked, whose inputs are its last operands; a loop has its own counter."""
    if eqn.primitive is for_loop.for_p:
        given = inside_loop(eqn, given)
    return rules.with_bodies(eqn, lambda j: _marked(j, given[max(len(given) - len(j.invars), 0) :]))


def inside_loop(eqn: ir.Eqn, given: Sequence[Integer | None]) -> list[Integer | None]:
    """What a loop's body knows of its counter and its constants, if so much is known of the operands."""
    p = eqn.params
    consts = [x.interval if x is not None else None for x in given[: p.num_consts]]
    return [counter(p.nsteps), *consts]


def fits(found: Integer | None, size: Any, extent: Any, least: Any = None) -> bool:
    """Whether all indices of a range are in bounds; single ones may count from the end, down to `least`."""
    if found is None or not isinstance(size, int) or not isinstance(extent, int):
        return False
    least = least if least is not None or extent != 1 else -size
    return bool(found.low >= (least or 0) and found.high <= size - extent)

"""Checks that the library writes: of every index, divisor and result of a jaxpr, nested jaxprs included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import (
    Environment,
    Indexer,
    Setting,
    Span,
    bind_eqn,
    bitwise_not,
    bitwise_or,
    by_element_rules,
    keep_source,
    resolve_index_p,
)
from fiveloop.core.extend import (
    Eqn,
    ShapedArray,
    Source,
    bind,
    bind1,
    bitwise_and,
    jaxprs_in,
    stage_closed,
    with_jaxprs,
)
from fiveloop.state.checks.primitive import CheckParams, check_p
from fiveloop.state.checks.site import CheckSite
from fiveloop.state.discharge.phases import names_each_once
from fiveloop.state.primitives.common import IndexParams, accumulate_p, addupdate_p, get_p, swap_p
from fiveloop.state.primitives.lifetime import freeze_p

Checks = frozenset[str]
USER = "user"
INSERTED: Setting[Checks] = Setting("checks that are inserted", frozenset())
"""The kinds of the checks that will be inserted into what is traced."""
KINDS: Checks = frozenset([USER, "index", "nan", "div"])
_FIRST_INDEX = {get_p: 1, swap_p: 2, addupdate_p: 2, accumulate_p: 2}
_MOVES = (get_p, swap_p, freeze_p)
"""What gives what a Ref held: a nan in it was made before."""
_ACCUMULATES = (addupdate_p, accumulate_p)


def insert_checks(jaxpr: Jaxpr, kinds: Checks, *, last: bool = False) -> Jaxpr:
    """The jaxpr with checks of these kinds: of the same inputs and results, and with the effect of a check.

    If it is the `last` time, its operations are marked, so that no such check of them is inserted again.
    """
    if not kinds:
        return jaxpr
    return jaxpr.remember(("checks", kinds, last), lambda: _insert(jaxpr, kinds, last))


def insert_for_lanes(jaxpr: Jaxpr) -> Jaxpr:
    """What only some lanes of a batch are meant to run, with the checks that will be inserted into what is traced.

    After batching, all lanes compute it, and nobody knows any more which are meant to: so it is done before. Under
    `eval_predicated`, such a check fails for those lanes alone.
    """
    return insert_checks(jaxpr, INSERTED.value, last=True)


def _insert(jaxpr: Jaxpr, kinds: Checks, last: bool) -> Jaxpr:
    def run(*args: Value) -> list[Value]:
        env = Environment[Value](zip(jaxpr.invars, args, strict=True))
        with keep_source() as set_source:
            mark = lambda source: set_source(_marked(source, kinds))
            step = lambda eqn, operands: _step(eqn, operands, kinds, last)
            env.run(jaxpr.eqns, step, mark if last else set_source)
        return [env.read(a) for a in jaxpr.outvars]

    return stage_closed(run, jaxpr.in_avals, jaxpr.name)


def _marked(source: Source | None, kinds: Checks) -> Source | None:
    """A line of whose operations these kinds of checks have been inserted."""
    return source and source._replace(marks=source.marks | kinds)


def _step(eqn: Eqn, operands: Sequence[Value], kinds: Checks, last: bool) -> list[Value]:
    if jaxprs_in(eqn.params):
        params = with_jaxprs(eqn.params, lambda inner: insert_checks(inner, kinds, last=last))
        return bind(eqn.primitive, *operands, params=params)
    if eqn.source is not None:
        kinds = kinds - eqn.source.marks
    if "index" in kinds:
        _check_indices(eqn, operands)
    if "div" in kinds and eqn.primitive.name in _DIVISIONS:
        _DIVISIONS[eqn.primitive.name](eqn, operands)
    if "nan" not in kinds or eqn.primitive in _MOVES:
        return bind_eqn(eqn, operands)
    if eqn.primitive in _ACCUMULATES:
        return _accumulate(eqn, operands)
    outs = bind_eqn(eqn, operands)
    for out in outs:
        _check_nan(eqn, operands, out)
    return outs


def _check(eqn: Eqn, holds: Value, message: str, *values: Value) -> None:
    avals = tuple(x.aval for x in values if isinstance(x.aval, ShapedArray))
    site = CheckSite(message, avals, source=None if eqn.source is None else str(eqn.source))
    bind(check_p, holds.all(), *values, params=CheckParams(site, inserted=True))


# indices


def _check_indices(eqn: Eqn, operands: Sequence[Value]) -> None:
    if eqn.primitive is resolve_index_p and eqn.params.size:
        window = 1 if eqn.params.window is None else eqn.params.window
        _check_index(eqn, operands[0], eqn.params.size, window, "an axis")
    elif eqn.primitive in _FIRST_INDEX:
        index = operands[_FIRST_INDEX[eqn.primitive] :]
        for (axis, extent), i in zip(_extents(eqn.params.indexer), index, strict=True):
            _check_index(eqn, i, operands[0].shape[axis], extent, f"axis {axis}")


def _extents(indexer: Indexer) -> Iterator[tuple[int, Any]]:
    """The axes whose index is an operand, and how many elements each takes there."""
    for axis in indexer.dynamic_axes:
        entry = indexer.entries[axis]
        yield axis, entry.extent if isinstance(entry, Span) else 1


def _check_index(eqn: Eqn, index: Value, size: Any, extent: Any, axis: str) -> None:
    """Check that a block of a size fits in an axis; a negative index counts from its end."""
    if 0 in index.shape:
        return
    fits = bitwise_and(index >= -size, index <= size - extent)
    flat = index.reshape(-1)
    offending = flat[fits.reshape(-1).argmin()] if index.ndim else index
    block = f"a block of {extent} at index {{}}" if extent != 1 else "index {}"
    _check(eqn, fits, f"{block} is out of bounds for {axis} of size {size}", offending)


# divisions


def _check_divisor(eqn: Eqn, operands: Sequence[Value]) -> None:
    """Check the last operand: what the others are divided by, or the only one."""
    _check(eqn, operands[-1] != 0, f"`{eqn.primitive}` divides by zero")


def _check_power(eqn: Eqn, operands: Sequence[Value]) -> None:
    """Check that no zero is raised to a negative power."""
    base, exponent = operands
    _check(eqn, bitwise_or(base != 0, exponent.real >= 0), f"`{eqn.primitive}` divides by zero")


def _check_integer_power(eqn: Eqn, operands: Sequence[Value]) -> None:
    if eqn.params.y < 0:
        _check_divisor(eqn, operands)


_DIVISIONS: dict[str, Callable[[Eqn, Sequence[Value]], None]] = {
    "div": _check_divisor,
    "rem": _check_divisor,
    "rsqrt": _check_divisor,
    "pow": _check_power,
    "integer_pow": _check_integer_power,
}
"""The primitives that divide, by their names: all that is written with `/`, `//`, `%` or a power consists of them."""


# nans


def _check_nan(eqn: Eqn, operands: Sequence[Value], out: Value) -> None:
    """Check that a primitive makes no nan: none is in a result that is in no operand.

    Of one that works element by element, none in the same place; any other may have moved it.
    """
    if not _may_hold_nan(out):
        return
    in_place = eqn.primitive in by_element_rules or (
        eqn.primitive in _ACCUMULATES and names_each_once(eqn.params.indexer)
    )
    made = out != out
    for x in operands:
        if _may_hold_nan(x):
            found = x != x
            alike = x.shape == () or (in_place and x.shape == out.shape)
            made = bitwise_and(made, bitwise_not(found if alike else found.any()))
    _check(eqn, bitwise_not(made), f"`{eqn.primitive}` made a nan")


def _accumulate(eqn: Eqn, operands: Sequence[Value]) -> list[Value]:
    """Accumulate, and check that no nan is in the Ref then that was in neither it nor the value."""
    ref, x, *index = operands
    place = IndexParams(eqn.params.indexer)
    before = bind1(get_p, ref, *index, params=place)
    outs = bind_eqn(eqn, operands)
    _check_nan(eqn, [before, x], bind1(get_p, ref, *index, params=place))
    return outs


def _may_hold_nan(x: Value) -> bool:
    return isinstance(x.aval, ShapedArray) and x.aval.differentiable

"""Inserts checks of every index, divisor and result into a jaxpr, nested jaxprs included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace
from fiveloop.core.ir.indexer import Indexer, Span
from fiveloop.core.primitives import special
from fiveloop.core.rules import RuleTable, by_element_rules
from fiveloop.state import primitives
from fiveloop.state.checks.primitive import CheckParams, check_p
from fiveloop.state.checks.record import CheckSite

Checks = frozenset[str]
USER = "user"
INSERTED: trace.Setting[Checks] = trace.Setting("checks that are inserted", frozenset())
"""The kinds of the checks that will be inserted into what is traced."""
KINDS: Checks = frozenset([USER, "index", "nan", "div"])


Check: TypeAlias = Callable[[ir.Eqn, ad.Values], None]
"""Binds checks of an equation's operands, before it runs."""


NanCheck: TypeAlias = Callable[[ir.Eqn, ad.Values], list[Value]]
"""Runs an equation, and binds a check that it makes no nan."""


index_check_rules: RuleTable[Check] = RuleTable(
    "index_check", default="it indexes nothing", by="index_check_rules.define"
)
division_check_rules: RuleTable[Check] = RuleTable(
    "division_check", default="it does not divide", by="division_check_rules.define"
)
nan_check_rules: RuleTable[NanCheck] = RuleTable(
    "nan_check",
    default="a nan is of its making if it is in no operand",
    by="nan_check_rules.define",
)


def insert_checks(jaxpr: Jaxpr, kinds: Checks, *, last: bool = False) -> Jaxpr:
    """The jaxpr with checks of these kinds: of the same inputs and results, and with the effect of a check.

    If it is the `last` time, its operations are marked, so that no such check of them is inserted again.
    """
    return _insert(jaxpr, kinds, last) if kinds else jaxpr


def insert_for_lanes(jaxpr: Jaxpr) -> Jaxpr:
    """What only some lanes of a batch are meant to run, with the checks that will be inserted into what is traced.

    After batching, all lanes compute it, and nobody knows any more which are meant to: so it is done before. Under
    `eval_predicated`, such a check fails for those lanes alone.
    """
    return insert_checks(jaxpr, INSERTED.value, last=True)


@ir.once_per_jaxpr
def _insert(jaxpr: Jaxpr, kinds: Checks, last: bool) -> Jaxpr:
    def run(*args: Value) -> list[Value]:
        env = ir.Environment[Value](zip(jaxpr.invars, args, strict=True))
        with trace.keep_source() as set_source:
            mark = lambda at: set_source(at and at._replace(marks=at.marks | kinds))
            step = lambda eqn, operands: _step(eqn, operands, kinds, last)
            env.run(jaxpr.eqns, step, mark if last else set_source)
        return [env.read(a) for a in jaxpr.outvars]

    return trace.stage_closed(run, jaxpr.in_avals, jaxpr.name)


def _step(eqn: ir.Eqn, operands: ad.Values, kinds: Checks, last: bool) -> list[Value]:
    if ir.jaxprs_in(eqn.params):
        params = ir.with_jaxprs(eqn.params, lambda inner: insert_checks(inner, kinds, last=last))
        return trace.bind(eqn.primitive, *operands, params=params)
    if eqn.primitive is check_p and eqn.params.warns:
        params = replace(eqn.params, warns=False, inserted=True)
        return trace.bind(check_p, *operands, params=params)
    if eqn.source is not None:
        kinds = kinds - eqn.source.marks
    for kind, rules in (("index", index_check_rules), ("div", division_check_rules)):
        check = rules.find(eqn.primitive)
        if check is not None and kind in kinds:
            check(eqn, operands)
    rule = nan_check_rules.find(eqn.primitive) if "nan" in kinds else None
    if rule is not None:
        return rule(eqn, operands)
    outs = trace.bind_eqn(eqn, operands)
    for out in outs if "nan" in kinds else ():
        _check_nan(eqn, operands, out, in_place=eqn.primitive in by_element_rules)
    return outs


def _check(eqn: ir.Eqn, holds: Value, message: str, *values: Value) -> None:
    avals = tuple(x.aval for x in values if isinstance(x.aval, ir.ShapedArray))
    site = CheckSite(message, avals, source=None if eqn.source is None else str(eqn.source))
    trace.bind(check_p, holds.all(), *values, params=CheckParams(site, inserted=True))


# indices


def _check_resolved(eqn: ir.Eqn, operands: ad.Values) -> None:
    if eqn.params.size:
        window = 1 if eqn.params.window is None else eqn.params.window
        _check_index(eqn, operands[0], eqn.params.size, window, "an axis")


def _check_read(eqn: ir.Eqn, operands: ad.Values) -> None:
    ref, *index = operands
    indexer: Indexer = eqn.params.indexer
    for axis, i in zip(indexer.dynamic_axes, index, strict=True):
        entry = indexer.entries[axis]
        extent = entry.extent if isinstance(entry, Span) else 1
        _check_index(eqn, i, ref.shape[axis], extent, f"axis {axis}")


index_check_rules.define(prims.resolve_index_p, _check_resolved)
index_check_rules.define(primitives.get_p, _check_read)
for _writing in (primitives.swap_p, primitives.addupdate_p, primitives.accumulate_p):
    index_check_rules.define(_writing, lambda eqn, xs: _check_read(eqn, [xs[0], *xs[2:]]))


def _check_index(eqn: ir.Eqn, index: Value, size: Any, extent: Any, axis: str) -> None:
    """Check that a block of a size fits in an axis; a negative index counts from its end."""
    if 0 in index.shape:
        return
    fits = prims.bitwise_and(index >= -size, index <= size - extent)
    flat = index.reshape(-1)
    offending = flat[fits.reshape(-1).argmin()] if index.ndim else index
    block = f"a block of {extent} at index {{}}" if extent != 1 else "index {}"
    _check(eqn, fits, f"{block} is out of bounds for {axis} of size {size}", offending)


# divisions


def _check_divisor(eqn: ir.Eqn, operands: ad.Values) -> None:
    """Check the last operand: what the others are divided by, or the only one."""
    _check(eqn, operands[-1] != 0, f"`{eqn.primitive}` divides by zero")


def _check_power(eqn: ir.Eqn, operands: ad.Values) -> None:
    """Check that no zero is raised to a negative power."""
    base, exponent = operands
    holds = prims.bitwise_or(base != 0, exponent.real >= 0)
    _check(eqn, holds, f"`{eqn.primitive}` divides by zero")


# All that is written with `/`, `//`, `%` or a power consists of these.
for _dividing in (prims.div, prims.rem, prims.floor_div, prims.mod, prims.rsqrt):
    division_check_rules.define(_dividing.prim, _check_divisor)
division_check_rules.define(prims.pow.prim, _check_power)
division_check_rules.define(
    special.integer_pow_p, lambda eqn, xs: _check_divisor(eqn, xs) if eqn.params.y < 0 else None
)


# nans


def _check_nan(eqn: ir.Eqn, operands: ad.Values, out: Value, in_place: bool) -> None:
    """Check that a primitive makes no nan: a result has none if no operand has one.

    An elementwise primitive (`in_place`) is checked element by element; any other may have moved a nan.
    """
    if not _may_hold_nan(out):
        return
    made = out != out
    for x in operands:
        if _may_hold_nan(x):
            found = x != x
            alike = x.shape == () or (in_place and x.shape == out.shape)
            made = prims.bitwise_and(made, prims.bitwise_not(found if alike else found.any()))
    _check(eqn, prims.bitwise_not(made), f"`{eqn.primitive}` made a nan")


def _accumulate(eqn: ir.Eqn, operands: ad.Values) -> list[Value]:
    """Accumulate, and check that no nan is in the Ref then that was in neither it nor the value."""
    ref, x, *index = operands
    before = primitives.read(ref, eqn.params.indexer, index)
    outs = trace.bind_eqn(eqn, operands)
    after = primitives.read(ref, eqn.params.indexer, index)
    _check_nan(eqn, [before, x], after, in_place=eqn.params.indexer.names_each_once)
    return outs


def _may_hold_nan(x: Value) -> bool:
    return isinstance(x.aval, ir.ShapedArray) and x.aval.differentiable


# A nan in what a Ref held was made before.
for _moving in (primitives.get_p, primitives.swap_p, primitives.freeze_p):
    nan_check_rules.define(_moving, trace.bind_eqn)
for _accumulating in (primitives.addupdate_p, primitives.accumulate_p):
    nan_check_rules.define(_accumulating, _accumulate)

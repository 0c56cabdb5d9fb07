"""`check`: records the first predicate that is false; has no results."""

from __future__ import annotations

import numpy as np

from fiveloop.core import Value, ad, ir, prims, rules, trace, transforms
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.state import handlers, predicate
from fiveloop.state.checks import effect
from fiveloop.state.checks.record import CheckSite, empty_record, record_aval, record_of


@dataclass(frozen=True)
class CheckParams:
    """Where the check stands, how many leading axes of its operands are lanes, and whether the library wrote it.

    One that `warns` logs a warning if it fails, and raises only where the library inserts checks.
    """

    site: CheckSite
    lanes: int = 0
    inserted: bool = False
    warns: bool = False

    @property
    def effect(self) -> type[effect.CheckEffect]:
        """The kind of its effect."""
        if self.warns:
            return effect.WarningEffect
        return effect.InsertedCheckEffect if self.inserted else effect.CheckEffect


check_p: ir.Primitive[CheckParams] = ir.Primitive("check")


def check_abstract_eval(avals: ir.Avals, p: CheckParams) -> ir.Typing:
    """No results; the effect says how many words the values of the message take."""
    pred, *values = avals
    shapes = [pred.shape, *[a.shape[: p.lanes] for a in values]]
    if pred.dtype.kind != "b" or pred.ndim != p.lanes or len(set(shapes)) > 1:
        raise TypeError(
            f"check: expected a bool for each of the lanes in the first {p.lanes} axes, got {list(avals)}"
        )
    return [], frozenset([p.effect(p.site.num_words)])


def check_impl(operands: ad.Values, p: CheckParams) -> list[Value]:
    """Raise, or warn, now if something has failed; if checks are deferred, nobody looks yet."""
    if effect.are_deferred() or not np.asarray(operands[0]).all():
        p.effect.at_return(_record(operands, p, record_aval(p.site.num_words)))
    return []


def check_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: CheckParams) -> ad.Batched:
    """Check all lanes at once."""
    moved = [transforms.move_batch(x, size, d) for x, d in zip(operands, dims, strict=True)]
    return trace.bind(check_p, *moved, params=replace(p, lanes=p.lanes + 1)), []


def check_handler(
    handling: handlers.Handling, ref: Value, operands: ad.Values, p: CheckParams
) -> list[Value]:
    """Record a failure if it is the first."""
    record = _record(operands, p, handling.aval)
    before = ref[...]
    ref[...] = prims.select(prims.equal(before[0], 0), record, before)
    return []


def _record(operands: ad.Values, p: CheckParams, aval: ir.Aval) -> Value:
    """The record of the first lane that fails, or one that tells of nothing."""
    holds, *values = operands
    if 0 in holds.shape:
        return empty_record(aval)
    fails, lanes = prims.bitwise_not(holds.all()), []
    for k in range(p.lanes):
        lane = holds.all(axis=tuple(range(1, p.lanes - k))).argmin()
        lanes.append(lane)
        holds, *values = [x[lane] for x in (holds, *values)]
    return prims.select(fails, record_of(p.site, lanes, values, aval), empty_record(aval))


def _print(eqn: ir.Eqn, names: ir.Names) -> str:
    return " ".join([f"{check_p} {eqn.params.site}", *map(names.atom, eqn.invars)])


ir.define_printer(check_p, _print)
rules.define(
    check_p,
    abstract_eval=check_abstract_eval,
    lower=rules.Refusal(
        "failures are recorded in a Ref; handle the effect first (`thread_effect`)"
    ),
    impl=check_impl,
    jvp=lambda primals, tangents, p: (trace.bind(check_p, *primals, params=p), []),
    batch=check_batch,
)
handlers.define_handler(check_p, check_handler)
# Nothing fails where the condition does not hold.
predicate.define_predicate(
    check_p,
    lambda pred, xs, guard, p: trace.bind(
        check_p, prims.bitwise_or(xs[0], prims.bitwise_not(pred)), *xs[1:], params=p
    ),
)

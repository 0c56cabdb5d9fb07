"""`explain`: reports which planning steps were applied to each loop of a function, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from fiveloop.core import Jaxpr, ir, prims, trace
from fiveloop.core.api import flatten, staging
from fiveloop.core.closed_call import closed_call_p
from fiveloop.core.dataclass import dataclass
from fiveloop.core.inspect.stage_list import InPlace, in_place, ready_jaxpr
from fiveloop.loops.analysis import operands
from fiveloop.loops.explain import report
from fiveloop.loops.options import telling
from fiveloop.loops.plan import branch
from fiveloop.loops.primitives import for_loop, while_loop
from fiveloop.loops.record import MACHINERY, Record, shown_aval, shown_type


@trace.boundary
def explain(f: Callable[..., Any], *args: Any, **kwargs: Any) -> report.Explanation:
    """Report how planning changed each loop of `f` for these arguments, or for descriptions of them (`ShapeDtype`): as
    text and as data.

    `f` may be any function: jitted, a derivative, a `vmap`. It is traced again and, if its loops need an order of
    reads and writes, compiled; it is not run.

    >>> import fiveloop.numpy as fnp
    >>> from fiveloop.loops import fori_loop
    >>> def shifted(x):
    ...     return fori_loop(1, 4, lambda i, y: y.at[i].set(y[i - 1]), x)
    >>> print(explain(shifted, fnp.arange(4.0)).loops[0].decision("promote").reason)
    it is only indexed and updated at indices, so it runs as a Ref
    """
    flatten.check_callable("explain", f)
    with telling():
        jaxpr = staging.stage_user(f, args, kwargs, returns_refs=True)[0].jaxpr
        # A program can be compiled if all sizes are known.
        sizes = [ir.size_of(shown_aval(a).shape) for a in jaxpr.in_avals]
        found = in_place(jaxpr) if all(map(ir.is_constant, sizes)) else None
        ready = ready_jaxpr(jaxpr)
    loops = tuple(_report(loop, found) for loop in _loops(ready, (), "", count(1)))
    if found is None:
        return report.Explanation(loops, None, None)
    return report.Explanation(loops, found.emission, len(found.copies))


@dataclass(frozen=True, slots=True)
class _Found:
    """A loop, its number, and what is around it."""

    eqn: ir.Eqn
    number: str
    within: tuple[str, ...]


def _loops(
    jaxpr: Jaxpr, within: tuple[str, ...], prefix: str, numbers: Iterator[int]
) -> Iterator[_Found]:
    """The loops of a jaxpr, each before those within it; those of a call are counted on from those before the call."""
    for eqn in jaxpr.eqns:
        if branch.is_guard(eqn):
            continue
        bodies = ir.jaxprs_in(eqn.params)
        if _is_loop(eqn):
            number = f"{prefix}{next(numbers)}"
            yield _Found(eqn, number, within)
            for body in bodies:
                yield from _loops(body, (), f"{number}.", count(1))
            continue
        for k, body in enumerate(bodies):
            yield from _loops(body, (*within, _place(eqn, k)), prefix, numbers)


def _place(eqn: ir.Eqn, k: int) -> str:
    """What a call or a branch is called."""
    if eqn.primitive is while_loop.while_p:
        call: str = eqn.params.record.called.call
        return call
    name = getattr(eqn.params, "name", "")
    if eqn.primitive is closed_call_p:
        return f"call of `{name or ir.jaxprs_in(eqn.params)[k].name}`"
    if len(ir.jaxprs_in(eqn.params)) > 1:
        return f"{eqn.primitive} branch {k}"
    return f"{eqn.primitive} `{name}`" if name else str(eqn.primitive)


def _report(found: _Found, program: InPlace | None) -> report.LoopReport:
    p, record = found.eqn.params, found.eqn.params.record
    copies = _copies(p.body, program)
    is_for = found.eqn.primitive is for_loop.for_p
    saved = [
        report.SavedReport(s.type, s.bytes, s.each_step, shown_line(s.source)) for s in record.saved
    ]
    decisions = [
        report.StepReport(d.step, d.subject, d.done, d.reason, shown_line(d.source))
        for d in record.decisions
    ]
    return report.LoopReport(
        number=found.number,
        call=record.called.call if is_for or record.tells else "while_loop",
        name=record.called.name or p.body.name or "body",
        line=shown_line(found.eqn.source),
        within=found.within,
        role=record.part,
        steps=p.nsteps if is_for else record.steps,
        may_end=p.end is not None or bool(p.counted) if is_for else record.steps is None,
        reverse=is_for and p.reverse,
        unroll=max(p.unroll, 1) if is_for else 1,
        operands=record.operands,
        decisions=tuple(decisions),
        saved=tuple(saved),
        in_place=_in_place(p.body, record, copies, program),
        copies=copies,
    )


def _copies(body: Jaxpr, program: InPlace | None) -> int:
    """How many of the copies that are left may be of what a loop carries."""
    carried = [shown_type(a) for a in body.out_avals if a.shape]
    return sum(report.same_shape(copy.shape, carried) for copy in program.copies) if program else 0


def _num_orders(jaxpr: Jaxpr) -> int:
    """How often a step orders reads before writes, what loops within it do not counted."""
    found = 0
    for eqn in jaxpr.eqns:
        found += eqn.primitive is prims.order_p
        if not _is_loop(eqn):
            found += sum(map(_num_orders, ir.jaxprs_in(eqn.params)))
    return found


def _is_loop(eqn: ir.Eqn) -> bool:
    if eqn.primitive not in (while_loop.while_p, for_loop.for_p):
        return False
    record = eqn.params.record
    return not (branch.is_guard(eqn) or record.is_branch or record is MACHINERY)


def _in_place(body: Jaxpr, record: Record, copies: int, program: InPlace | None) -> str:
    orders = _num_orders(body)
    is_updated = any(o.use.startswith("Ref,") and "at indices" in o.use for o in record.operands)
    if not is_updated and not orders:
        arrays = [
            o for o in record.operands if o.use == operands.CARRIED and not o.type.endswith("[]")
        ]
        new = ", and each step makes a new array for each array that is carried as a value"
        new = new if arrays and (copies or _makes_arrays(body)) else ""
        return f"no Ref changes at indices{new}"
    if not orders:
        return "no write uses an element of another array that changes: no order is needed"
    left = f"{copies} copies of whole arrays are left" if copies else "no array is copied"
    times = "once" if orders == 1 else f"{orders} times"
    if program is None:
        return f"reads are ordered before writes {times} a step"
    return f"reads are ordered before writes {times} a step, by `{program.emission}`: {left}"


def _makes_arrays(body: Jaxpr) -> bool:
    """Whether a body returns an array that is neither an operand nor an update of an operand at indices."""
    made = {v: eqn.primitive for eqn in body.eqns for v in eqn.outvars}
    given = [made[v] for v in body.outvars if v in made and v.aval.shape]
    return any(p is not prims.put_p for p in given)


def shown_line(source: ir.Source | None) -> str | None:
    """A line of the user's program: the file's name and the number."""
    return f"{source.file.rpartition('/')[2]}:{source.line}" if source is not None else None

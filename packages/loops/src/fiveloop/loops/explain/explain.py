"""`explain`: reports which planning steps were applied to each loop of a function, and why, as data and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from fiveloop.core import Jaxpr, ir, prims, trace
from fiveloop.core.api import flatten, staging
from fiveloop.core.closed_call import closed_call_p
from fiveloop.core.dataclass import asdict, dataclass, replace
from fiveloop.core.inspect.stage_list import InPlace, in_place, ready_jaxpr
from fiveloop.loops.analysis import operands
from fiveloop.loops.options import telling
from fiveloop.loops.plan import branch
from fiveloop.loops.primitives import for_loop, while_loop
from fiveloop.loops.record import (
    ALL_OFF,
    MACHINERY,
    OFF,
    PLAIN,
    Operand,
    Record,
    shown_aval,
    shown_type,
)


@trace.boundary
def explain(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
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
        return Explanation(loops, None, None)
    return Explanation(loops, found.emission, len(found.copies))


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


def _report(found: _Found, program: InPlace | None) -> LoopReport:
    p, record = found.eqn.params, found.eqn.params.record
    copies = _copies(p.body, program)
    is_for = found.eqn.primitive is for_loop.for_p
    saved = [SavedReport(s.type, s.bytes, s.each_step, shown_line(s.source)) for s in record.saved]
    decisions = [
        StepReport(d.step, d.subject, d.done, d.reason, shown_line(d.source))
        for d in record.decisions
    ]
    return LoopReport(
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
    return sum(same_shape(copy.shape, carried) for copy in program.copies) if program else 0


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


@dataclass(frozen=True)
class StepReport:
    """What a planning step did with something in a loop (`done`), or why it did nothing; the line that decides."""

    step: str
    subject: str
    done: bool
    reason: str
    line: str | None = None

    def __str__(self) -> str:
        mark = "+" if self.done else "-"
        what = f"{mark} {self.step}: " + (f"{self.subject}: " if self.subject else "")
        return f"{what}{self.reason}" + (f", {self.line}" if self.line else "")


@dataclass(frozen=True)
class SavedReport:
    """What a loop keeps for its derivative, of each step or once, and the line that computes it."""

    type: str
    bytes: ir.Dim
    each_step: bool
    line: str | None

    def __str__(self) -> str:
        often = "of each step" if self.each_step else "once"
        line = f", {self.line}" if self.line else ""
        return f"keeps {self.type} {often}: {_number(self.bytes)} bytes{line}"


@dataclass(frozen=True)
class LoopReport:
    """One loop: its place in the program, its operands, and the planning steps that were applied.

    `number` counts loops; the number of an inner loop follows a dot. `within` names the calls and branches around the
    loop. `call` is the function that was called, and `role` the purpose of the loop: "loop", a part of a derivative,
    or lanes. `steps` is None if it is known only at run time; with `may_end` there may be fewer. `in_place` says how
    arrays that are updated at indices stay in place, and `copies` is the number of instructions that copy such an
    array in every step nevertheless.
    """

    number: str
    call: str
    name: str
    line: str | None
    within: tuple[str, ...]
    role: str
    steps: ir.Dim | None
    may_end: bool
    reverse: bool
    unroll: int
    operands: tuple[Operand, ...]
    decisions: tuple[StepReport, ...]
    saved: tuple[SavedReport, ...]
    in_place: str
    copies: int

    @property
    def residual_bytes(self) -> ir.Dim:
        """The bytes that are saved for the derivative."""
        total: ir.Dim = 0
        for saved in self.saved:
            total = total + saved.bytes
        return total

    def decision(self, step: str, subject: str = "") -> StepReport:
        """The decision of a planning step about a subject, such as an operand by its name, or the first that it made.

        Raises KeyError if there is no such decision.
        """
        for found in self.decisions:
            if found.step == step and (not subject or found.subject == subject):
                return found
        known = ", ".join(f"{d.step} {d.subject}".rstrip() for d in self.decisions)
        there = f"one of {known}" if known else "which has none"
        asked = f"{step} {subject}".rstrip()
        raise KeyError(f"expected a decision of loop {self.number}, {there}; got {asked!r}")

    def __str__(self) -> str:
        return "\n".join([self._title(), *[f"  {line}" for line in self._lines()]])

    def _title(self) -> str:
        steps = "a number of steps known only at run time"
        if self.steps is not None:
            steps = f"{_number(self.steps)} steps" if self.steps != 1 else "1 step"
            steps = f"at most {steps}" if self.may_end else steps
        names = " or ".join(f"`{name}`" for name in self.name.split(" or "))
        what = f"{self.call} of {names}"
        role = self.role if self.role != PLAIN else None
        down = "counting down" if self.reverse else None
        title = ", ".join(filter(None, [what, role, self.line, steps, down]))
        return f"loop {self.number}: {title}"

    def _lines(self) -> list[str]:
        lines = [f"within {' / '.join(self.within)}"] if self.within else []
        names = max([len(o.name) for o in self.operands], default=0)
        types = max([len(o.type) for o in self.operands], default=0)
        lines += [f"{o.name:<{names}}  {o.type:<{types}}  {o.use}" for o in self.operands]
        lines += _told(self.decisions)
        lines += map(str, self.saved)
        if self.unroll > 1:
            lines.append(f"unroll: {self.unroll} steps are compiled into one iteration")
        lines.append(f"in place: {self.in_place}")
        return lines


def _told(decisions: Sequence[StepReport]) -> list[str]:
    """A line for each decision; decisions that differ only in their subjects share one, as do steps that are off."""
    same: dict[tuple[object, ...], list[StepReport]] = {}
    for d in decisions:
        key = (d.done, d.reason, d.line) if d.reason == OFF else (d.step, d.done, d.reason, d.line)
        same.setdefault(key, []).append(d)
    return [
        str(
            replace(
                group[0],
                step=", ".join(dict.fromkeys(d.step for d in group)),
                subject=", ".join(dict.fromkeys(d.subject for d in group)),
                reason=ALL_OFF if len(group) > 1 and group[0].reason == OFF else group[0].reason,
            )
        )
        for group in same.values()
    ]


@dataclass(frozen=True)
class Explanation:
    """The loops of a program; prints as text, and `to_dict` returns plain data that `json` can write.

    `emission` is the form in which reads are ordered before writes, None if no loop needs an order; `copies` is the
    number of copies of whole arrays in the loops of the compiled program. A program with symbolic sizes is not
    compiled: both are None.
    """

    loops: tuple[LoopReport, ...]
    emission: str | None
    copies: int | None

    def __len__(self) -> int:
        return len(self.loops)

    def to_dict(self) -> dict[str, Any]:
        """The explanation as dictionaries, lists, strings and numbers."""
        return {
            "loops": [
                _plain({**asdict(loop), "residual_bytes": loop.residual_bytes})
                for loop in self.loops
            ],
            "emission": self.emission,
            "copies": self.copies,
        }

    def __str__(self) -> str:
        if not self.loops:
            return "there are no loops"
        return "\n".join([*map(str, self.loops), self._summary()])

    __repr__ = __str__

    def _summary(self) -> str:
        if self.copies is None:
            return "sizes are not known, so the program is not compiled"
        copies = f"{self.copies} copies of whole arrays are left" if self.copies else "no copies"
        if self.emission is None:
            left = f"; {copies}" if self.copies else ""
            return f"nothing in these loops needs an order{left}"
        return f"reads are ordered before writes by `{self.emission}`: {copies}"


def _number(n: ir.Dim) -> str:
    """A number as people read it; a size that is not known is shown as it is."""
    return f"{n:,}" if ir.is_constant(n) else str(n)


def _plain(x: Any) -> Any:
    """The same for `json`, where sizes that are not known are text."""
    if isinstance(x, dict):
        return {name: _plain(part) for name, part in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(part) for part in x]
    return x if x is None or isinstance(x, str | int) else str(x)


def same_shape(hlo_shape: str, types: Sequence[str]) -> bool:
    """Whether an array of the compiled program may be one of some types: it has the same sizes."""
    sizes = hlo_shape.partition("[")[2]
    return any(sizes == t.partition("[")[2] for t in types)

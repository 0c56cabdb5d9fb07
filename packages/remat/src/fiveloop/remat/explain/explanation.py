"""`explain_residuals`: what a derivative saves and why, and its memory over time, as a table, JSON and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

from fiveloop.core import Jaxpr, ir, prims, rules, trace
from fiveloop.core.api import flatten
from fiveloop.core.dataclass import asdict, dataclass, replace
from fiveloop.remat.budget.amount import BYTES, Choice, shown, shown_time
from fiveloop.remat.buffers import Buffer, Timeline, backward_begins
from fiveloop.remat.explain import picture
from fiveloop.remat.explain.table import LEAST, WIDTH, cut, limit, shown_count, table
from fiveloop.remat.makers import maker_in, maker_of, place_of
from fiveloop.remat.name import name_p
from fiveloop.remat.policies import as_written
from fiveloop.remat.primitive import checkpoint_p
from fiveloop.remat.residuals import Residual, choice_of, choices_in, halves_of, place_in_program
from fiveloop.remat.timeline import timeline

Phase = Literal["forward", "backward"]
ROWS = 20
"""How many residuals a table shows unless told otherwise."""
MANY = 8
"""How many arguments a line names, unless it is to be whole."""
FAR = 2
"""A picture goes up to the budgets that allow at most so many times the peak."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The temporary bytes while one equation runs, what it needs for one step or branch included."""

    bytes: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Alive:
    """A buffer that is there at the peak: its bytes, what fills it first (a primitive, a carry or a labelled value),
    and where that was written.
    """

    bytes: int
    primitive: str
    source: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SavedStates:
    """A loop that goes back from a few states: how many are saved at a time, the bytes of each, and the loop's place.

    `steps` are those of the loop; 1 if their number is not known.
    """

    slots: int
    bytes_each: int
    steps: int
    source: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        steps = f" of {self.steps}" if self.steps > 1 else ""
        place = f" at {self.source}" if self.source else ""
        return f"{self.slots}{steps} of {shown(self.bytes_each)} at a time, the others recomputed: loop{place}"


@dataclass(frozen=True, repr=False)
class ResidualExplanation(picture.Report):
    """The values that a derivative saves and recomputes, and its temporary memory over time.

    `residuals` are sorted by size, largest first. `flops_again` counts the operations that both passes do, in loops for
    every step; if `open_ended`, there are loops of unknown length, of which one step is counted. `moments` list the
    memory through the forward and then the backward pass; `at_peak` are the buffers that are alive at the peak;
    `choices` are the plans for budgets; `states` are the loops of which a few states are saved at a time; `arguments`
    are those in which the derivative is taken; `policies` are those of the outermost checkpoints, as a program writes
    them, a budget as `budget 50%`. It prints as a table.
    """

    name: str
    residuals: tuple[Residual, ...]
    flops_again: int
    moments: tuple[Moment, ...]
    at_peak: tuple[Alive, ...]
    choices: tuple[Choice, ...] = ()
    states: tuple[SavedStates, ...] = ()
    arguments: tuple[str, ...] = ()
    open_ended: bool = False
    policies: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of all residuals, arguments included."""
        return sum(r.bytes for r in self.residuals)

    @property
    def peak(self) -> int:
        """The most temporary bytes at once; arguments and results do not count.

        A budget leaves a margin above the peak for memory that the compiler may add; the bytes of `choices` include it.
        """
        return max((m.bytes for m in self.moments), default=0)

    def peak_of(self, phase: Phase) -> int:
        """The most temporary bytes in one pass."""
        return max((m.bytes for m in self.moments if m.phase == phase), default=0)

    @trace.boundary
    def table(self, rows: int | None = None, width: int | None = WIDTH) -> str:
        """The residuals as a table of at most so many rows, with the totals below; those alike share a row.

        Cells are cut where a row has more than `width` characters; with `width=None` the text is whole.
        """
        groups = _alike(self.residuals)
        first = groups[: limit("rows", rows)]
        width = limit("width", width)
        lines = [table([_TITLES, *map(_row, first)], width)] if first else []
        rest = [r for group in groups[len(first) :] for r in group]
        if rest:
            lines.append(f"and {len(rest)} more, {shown(sum(r.bytes for r in rest))}")
        if not self.arguments:
            lines = [f"{self.name} has no floating argument: there is nothing to differentiate"]
        return "\n".join([*lines, *[""] * bool(lines), *self._totals(width)])

    def _totals(self, width: int | None) -> list[str]:
        many = None if width is None else MANY
        there = shown(sum(r.bytes for r in self.residuals if not r.verdict))
        forward, backward = shown(self.peak_of("forward")), shown(self.peak_of("backward"))
        values = f"{len(self.residuals)} value{'s' * (len(self.residuals) != 1)}"
        least = "at least " * self.open_ended
        return [
            f"saved  {shown(self.bytes)} in {values}, {there} of it in memory anyway",
            f"again  {least}{shown_count(self.flops_again)} operations in the backward pass",
            *["       (one step is counted of loops of unknown length)"] * self.open_ended,
            f"peak   {shown(self.peak)} of temporary memory (forward {forward}, backward {backward})",
            *[f"       {shown(a.bytes):>8}  {_told(a)}" for a in self.at_peak[:3]],
            *[f"states {s}" for s in self.states],
            *[line for choice in self.choices for line in _plans(choice, self.arguments, many)],
            *[f"       {_WITH_MARGIN}"] * bool(self.choices),
        ]

    def __str__(self) -> str:
        return self.table(ROWS)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arguments": list(self.arguments),
            "policies": list(self.policies),
            "saved_bytes": self.bytes,
            "flops_again": self.flops_again,
            "open_ended": self.open_ended,
            "peak_bytes": {
                "forward": self.peak_of("forward"),
                "backward": self.peak_of("backward"),
            },
            "residuals": [_as_dict(r) for r in self.residuals],
            "timeline": [[m.bytes, m.phase] for m in self.moments],
            "at_peak": [{**asdict(a), "path": list(a.path)} for a in self.at_peak],
            "states": [{**asdict(s), "path": list(s.path)} for s in self.states],
            "plans": [
                {**asdict(c), "budget": str(c.budget), "candidates": [*map(list, c.candidates)]}
                for c in self.choices
            ],
        }

    @cached_property
    def turn(self) -> int:
        """The first moment of the backward pass."""
        phases = [m.phase for m in self.moments]
        return phases.index("backward") if "backward" in phases else len(phases)

    def drawn(self) -> picture.Picture:
        """The memory over time."""
        return _drawn([self])

    @trace.boundary
    def compare(
        self, other: ResidualExplanation, names: tuple[str, str] | None = None
    ) -> ResidualDifference:
        """The residuals and the memory of `other`, compared with this explanation.

        `names` are what the table, the JSON text and the picture call the two sides. By default these are the names of
        the functions; the policies, if the functions have the same name; and "first" and "second", if these are the
        same, too.
        """
        if not isinstance(other, ResidualExplanation):
            raise TypeError(
                f"compare: expected a result of `explain_residuals`, got a value of type {type(other).__name__}"
            )
        return ResidualDifference(self, other, _sides(self, other, names))


def _sides(first: ResidualExplanation, second: ResidualExplanation, given: Any) -> tuple[str, str]:
    """The names of two sides: those that are given, or the first pair that tells them apart."""
    if given is None:
        written = [", ".join(side.policies) or "no checkpoint" for side in (first, second)]
        pairs = [(first.name, second.name), (written[0], written[1]), ("first", "second")]
        return next(pair for pair in pairs if pair[0] != pair[1])
    names = tuple(given) if isinstance(given, tuple | list) else ()
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise TypeError(f"compare: names must be a pair of strings, got {given!r}")
    if names[0] == names[1]:
        raise ValueError(f"compare: names must differ, got {given!r}")
    return names


@dataclass(frozen=True, repr=False)
class ResidualDifference(picture.Report):
    """Two explanations of residuals, the names of the two sides, and the differences. It prints as a table."""

    before: ResidualExplanation
    after: ResidualExplanation
    names: tuple[str, str] = ("first", "second")

    @cached_property
    def gone(self) -> tuple[Residual, ...]:
        """The residuals of the first side alone."""
        return _without(self.before.residuals, self.after.residuals)

    @cached_property
    def new(self) -> tuple[Residual, ...]:
        """The residuals of the second side alone."""
        return _without(self.after.residuals, self.before.residuals)

    @trace.boundary
    def table(self, rows: int | None = None, width: int | None = WIDTH) -> str:
        """The residuals of one side alone as a table of at most so many rows, with the totals below.

        A minus marks those of the first side, a plus those of the second. Cells are cut where a row has more than
        `width` characters; with `width=None` the text is whole.
        """
        signed = [("-", g) for g in _alike(self.gone)] + [("+", g) for g in _alike(self.new)]
        signed.sort(key=lambda pair: -sum(r.bytes for r in pair[1]))
        found = [(f"{sign}{row[0]}", *row[1:]) for sign, row in ((s, _row(g)) for s, g in signed)]
        first = found[: limit("rows", rows)]
        width = limit("width", width)
        lines = [table([_TITLES, *first], width)] if first else []
        if len(first) < len(found):
            lines.append(f"and {len(found) - len(first)} more")
        return "\n".join([*lines, *[""] * bool(lines), *self._totals(width)])

    def __str__(self) -> str:
        return self.table(ROWS)

    def _totals(self, width: int | None) -> list[str]:
        a, b = self.before, self.after
        each = None if width is None else max(width // 2 - 8, LEAST)
        first, second = (cut(name, each) for name in self.names)
        return [
            f"sides  - {first}, + {second}",
            f"saved  {shown(a.bytes)} -> {shown(b.bytes)}",
            f"again  {shown_count(a.flops_again)} -> {shown_count(b.flops_again)} operations",
            f"peak   {shown(a.peak)} -> {shown(b.peak)}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """The names, both explanations, and the residuals that only one of them has, as dictionaries and lists."""
        return {
            "names": list(self.names),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "gone": [_as_dict(r) for r in self.gone],
            "new": [_as_dict(r) for r in self.new],
        }

    def drawn(self) -> picture.Picture:
        """Both memories over time."""
        return _drawn([self.before, self.after], self.names)


@trace.boundary
def explain_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> ResidualExplanation:
    """Explain what the derivative of `f` with respect to all its floating arguments saves and why, and its memory
    over time.

    A derivative with respect to some of them has other residuals, and other plans for a budget: explain a function of
    these alone, such as `lambda ws: f(ws, x)`.

    The result prints as a table. `to_json()` returns all of it as data, `plot("memory.svg")` draws the temporary
    memory of the forward and the backward pass, and `compare(other)` shows the differences to another explanation. The
    memory is simulated on the program that is lowered, without compiling it.

    >>> import fiveloop.numpy as fnp
    >>> from fiveloop.remat import checkpoint
    >>> def f(x):
    ...     return fnp.sin(fnp.sin(x))
    >>> [explain_residuals(g, fnp.ones(1000)).bytes for g in (f, checkpoint(f))]
    [8000, 4000]
    """
    halves = halves_of("explain_residuals", f, *args, **kwargs)
    program = halves.both_passes()
    num_cts = len(program.invars) - len(halves.known.invars)
    residuals = sorted(halves.residuals(), key=lambda r: -r.bytes)
    line = timeline(program)
    return ResidualExplanation(
        flatten.function_name(f),
        tuple(residuals),
        halves.flops_again,
        _moments(line, backward_begins(line, program, num_cts)),
        tuple(map(_alive, line.at_peak)),
        choices_in(halves.known),
        tuple(dict.fromkeys(_saved_states(program, ()))),
        halves.arguments,
        _is_open_ended(program),
        tuple(dict.fromkeys(_policies_in(halves.known))),
    )


def _policies_in(jaxpr: Jaxpr) -> Iterator[str]:
    """The policies, or budgets, of the outermost checkpoints in a jaxpr."""
    for eqn in jaxpr.eqns:
        if eqn.primitive is checkpoint_p:
            choice = choice_of(eqn)
            yield f"budget {choice.budget}" if choice else as_written(eqn.params.policy)
        else:
            for body in rules.bodies_of(eqn):
                yield from _policies_in(body.jaxpr)


@ir.once_per_jaxpr
def _is_open_ended(jaxpr: Jaxpr) -> bool:
    """Whether a loop, at any depth, decides at each step whether it goes on."""
    bodies = [b for eqn in jaxpr.eqns for b in rules.bodies_of(eqn)]
    return any(b.open or _is_open_ended(b.jaxpr) for b in bodies)


def _saved_states(jaxpr: Jaxpr, path: tuple[str, ...]) -> Iterator[SavedStates]:
    """The loops in a jaxpr of which a few states are saved at a time."""
    for eqn in jaxpr.eqns:
        bodies = rules.bodies_of(eqn)
        for body in bodies:
            if body.slots:
                forward = bodies[0].jaxpr
                size = sum(prims.bytes_of([v.aval]) for v in ir.mutated(forward))
                place = place_in_program(eqn.source)
                yield SavedStates(body.slots, size, body.trips, place, path)
            yield from _saved_states(body.jaxpr, (*path, place_of(eqn, body)))


def _plans(choice: Choice, arguments: Sequence[str], many: int | None) -> list[str]:
    """What a budget came to, and the plans among which it chose, for the derivative in some arguments, `many` named."""
    rows = [
        f"       {shown(size):>10}  {shown_time(time)}{'  taken' if size == choice.bytes else ''}"
        for size, time in choice.candidates
    ]
    first = arguments[:many]
    shown_first = [*first, *["..."] * (len(first) < len(arguments))]
    given = f"       for the derivative in {', '.join(shown_first)}; a derivative in others has other plans"
    return [f"plan   {choice}", given, *rows]


def _moments(line: Timeline, turn: int) -> tuple[Moment, ...]:
    """A moment for each equation; of a loop and a branch one for each equation of a step."""
    found: list[Moment] = []
    for place, inside in enumerate(_levels(line)):
        phase: Phase = "forward" if place < turn else "backward"
        found += [Moment(level, phase) for level in inside]
    return tuple(found)


def _levels(line: Timeline) -> list[list[int]]:
    """The bytes at each place, those within it one after the other."""
    found: list[list[int]] = []
    for place, most in enumerate(line.bytes):
        inner = line.inner.get(place)
        if inner is None or not inner.eqns:
            found.append([most])
        else:
            base = most - inner.peak
            found.append([base + level for levels in _levels(inner) for level in levels])
    return found


def _alive(buffer: Buffer) -> Alive:
    """A buffer as people know it: of the array that a loop stacks, what makes an element."""
    made = maker_of(buffer.eqn, buffer.position)
    name = made.eqn.primitive.name
    if made.eqn.primitive is prims.put_p and made.jaxpr is not None:
        stacked = maker_in(made.jaxpr, made.eqn.invars[1])
        if stacked is None:
            name = "carry"
        else:
            made = replace(stacked, around=(*made.around, *stacked.around))
            name = made.eqn.primitive.name
    if made.eqn.primitive is name_p:
        name = f"named {made.eqn.params.name!r}"
    path = (*buffer.path, *made.path)
    return Alive(buffer.bytes, name, place_in_program(made.eqn.source), path)


_WITH_MARGIN = (
    "bytes of plans include a margin for what the compiler may add; the peak above does not"
)
_TITLES = ("bytes", "steps", "flops", "value", "made at", "in", "needed by", "verdict")


def _alike(residuals: Sequence[Residual]) -> list[list[Residual]]:
    """The residuals that differ in nothing that a table shows, together; the most bytes first."""
    groups: dict[tuple[object, ...], list[Residual]] = {}
    for r in residuals:
        groups.setdefault((r.aval, *_row([replace(r, flops=0)])), []).append(r)
    return sorted(groups.values(), key=lambda group: -sum(r.bytes for r in group))


def _row(group: Sequence[Residual]) -> tuple[str, ...]:
    r = group[0]
    needs = dict.fromkeys(f"{n.primitive}{' again' if n.again else ''}" for n in r.needed_by)
    label = f"{r.label}: " if r.label and "named" not in r.origin else ""
    verdict = f"{r.verdict} by {r.policy}" if r.policy and r.verdict != "recompute" else r.reason
    value = f"{label}{r.origin.removeprefix('result of ')}"
    flops = sum(r.flops for r in group)
    return (
        shown(sum(r.bytes for r in group)),
        str(r.trips) if r.trips > 1 else "",
        shown_count(flops) if flops else "",
        value if len(group) == 1 else f"{len(group)} times {value}",
        place_in_program(r.source),
        "/".join(r.path),
        ", ".join(needs),
        verdict,
    )


def _told(alive: Alive) -> str:
    place = f" at {alive.source}" if alive.source else ""
    return f"{alive.primitive}{place}{' in ' + '/'.join(alive.path) if alive.path else ''}"


def _as_dict(r: Residual) -> dict[str, Any]:
    return {
        "value": r.origin,
        "type": str(r.aval),
        "bytes": r.bytes,
        "steps": r.trips,
        "label": r.label,
        "path": list(r.path),
        "source": place_in_program(r.source),
        "needed_by": [{**asdict(n), "source": place_in_program(n.source)} for n in r.needed_by],
        "policy": r.policy,
        "verdict": r.verdict,
        "reason": r.reason,
        "flops": r.flops,
    }


def _without(some: Sequence[Residual], others: Sequence[Residual]) -> tuple[Residual, ...]:
    """The residuals that are not among others: those of the same type and origin are the same, each once."""
    left = [_identity(r) for r in others]
    found = []
    for r in some:
        if _identity(r) in left:
            left.remove(_identity(r))
        else:
            found.append(r)
    return tuple(found)


def _identity(r: Residual) -> tuple[Any, ...]:
    return (r.aval, r.origin, r.source, r.trips)


def _drawn(told: Sequence[ResidualExplanation], names: Sequence[str] = ()) -> picture.Picture:
    """Memory over time, one line for each explanation; one alone in the colours of its two passes."""
    peak, longest = max(e.peak for e in told), max(len(e.moments) for e in told)
    near = [c.allowed for e in told for c in e.choices if c.allowed <= FAR * peak]
    chart = picture.Picture(
        f"Temporary memory of {' and '.join(dict.fromkeys(e.name for e in told))}",
        picture.Axis(
            "equations in the order in which they run; of a loop, those of one step", longest, ()
        ),
        picture.axis("temporary memory", max([peak, *near]), BYTES),
    )
    if len(told) == 1:
        _draw_passes(chart, told[0])
        _draw_budgets(chart, told[0], picture.COLOURS[3])
    else:
        for k, e in enumerate(told):
            chart.steps([m.bytes for m in e.moments], picture.COLOURS[k])
        notes = [
            f"{cut(name, 24)}, peak {shown(e.peak)}" for name, e in zip(names, told, strict=True)
        ]
        chart.legend(list(zip(notes, picture.COLOURS, strict=False)))
        for e, colour in zip(told, picture.COLOURS, strict=False):
            _draw_budgets(chart, e, colour)
    return chart


def _draw_passes(chart: picture.Picture, told: ResidualExplanation) -> None:
    heights = [m.bytes for m in told.moments]
    chart.steps(heights[: told.turn], picture.COLOURS[0])
    chart.steps(heights[told.turn :], picture.COLOURS[1], told.turn)
    chart.legend([("forward", picture.COLOURS[0]), ("backward", picture.COLOURS[1])])
    chart.level(told.peak, f"peak {shown(told.peak)}")


def _draw_budgets(chart: picture.Picture, told: ResidualExplanation, colour: str) -> None:
    """A line for what each budget allows, the compiler's margin included."""
    for choice in told.choices:
        allowed = f", {shown(choice.allowed)}" * choice.budget.fraction
        chart.level(choice.allowed, f"budget {choice.budget}{allowed}", colour)

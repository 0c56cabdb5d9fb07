"""Steps of random programs that carry an array by value, and index and update it through branches, calls and loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st

from fiveloop.core import jit
from fiveloop.loops import fori_loop, scan
from fiveloop.testing.core.programs import (
    Draw,
    Env,
    Kinds,
    Scope,
    Shape,
    Step,
    Use,
    define_operation,
    draw_use,
)

MOST = 3
"""How far from the counter a place may be."""


class Change(Protocol):
    """What a step does with the array: the array after it."""

    def run(self, ops: Any, i: Any, x: Any, table: Any) -> Any:
        """Read and update `x` near the place `i`; `table` is of its shape, and the same in all steps."""


def _all(changes: tuple[Change, ...], ops: Any, i: Any, x: Any, table: Any) -> Any:
    for change in changes:
        x = change.run(ops, i, x, table)
    return x


@dataclass(frozen=True)
class Update:
    """Update a row by what is read from another one, and from the table.

    `late` also reads another row as it was before, and adds it afterwards; `whole` uses all of the array, and `twice`
    updates one version twice: these stay values.
    """

    kind: str
    at: int
    of: int
    late: bool
    odd: str

    def run(self, ops: Any, i: Any, x: Any, table: Any) -> Any:
        """The array with the row updated."""
        row = ops["sin"](ops["row"](x, i + self.of))
        value = ops["mean2"](row, ops["row"](table, i - self.of))
        new = ops["at"](x, i + self.at, self.kind, value)
        if self.late:
            old = ops["scale"](ops["row"](x, i - self.at), 0.5)
            new = ops["at"](new, i + self.of, "add", old)
        if self.odd == "whole":
            return ops["tanh"](new)
        return ops["mean2"](new, ops["at"](x, i, "set", row)) if self.odd == "twice" else new


@dataclass(frozen=True)
class Choice:
    """Changes by a `cond` or a `switch`; a branch may leave the array as it is, or (`peeks`) give a row besides."""

    name: str
    offset: int
    branches: tuple[tuple[Change, ...], ...]
    peeks: bool

    def run(self, ops: Any, i: Any, x: Any, table: Any) -> Any:
        """The array after the branch that the place chooses."""
        which = ops["int_rem"](i + self.offset)

        def branch(changes: tuple[Change, ...]) -> Callable[[Any], Any]:
            def run(x: Any) -> Any:
                new = _all(changes, ops, i, x, table)
                return [new, ops["row"](new, i)] if self.peeks else [new]

            return run

        outs = ops[self.name](which, [branch(changes) for changes in self.branches], x)
        return ops["at"](outs[0], i, "add", ops["sin"](outs[1])) if self.peeks else outs[0]


@dataclass(frozen=True)
class Within:
    """Changes in a call, or in a loop of a few steps of its own."""

    steps: int
    changes: tuple[Change, ...]

    def run(self, ops: Any, i: Any, x: Any, table: Any) -> Any:
        """The array after the changes."""
        if not self.steps:
            return ops["jitted"](lambda i, x: _all(self.changes, ops, i, x, table), i, x)
        step = lambda k, x: _all(self.changes, ops, i + k, x, table)
        return ops["carried"](self.steps, step, x, None)


@dataclass(frozen=True)
class Carried:
    """A loop that carries an array by value, and ends before its last step if there is a `limit`."""

    use: Use
    table: Use
    steps: int
    limit: int | None
    changes: tuple[Change, ...]

    def run(self, env: Env) -> None:
        """Append the array after the loop."""
        table = env.float(self.table)
        step = lambda i, x: _all(self.changes, env.ops, i, x, table)
        env.floats.append(env.ops["carried"](self.steps, step, env.float(self.use), self.limit))


@dataclass(frozen=True)
class Turn:
    """Changes of one of two arrays by what the other holds: after the turns before, or (`stale`) as the step got it."""

    which: int
    stale: bool
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Following:
    """A loop that carries two arrays by value, each of which is updated by what the other one holds."""

    uses: tuple[Use, Use]
    steps: int
    limit: int | None
    turns: tuple[Turn, ...]

    def run(self, env: Env) -> None:
        """Append both arrays after the loop."""

        def step(i: Any, given: Any) -> list[Any]:
            xs = list(given)
            for turn in self.turns:
                other = (given if turn.stale else xs)[1 - turn.which]
                xs[turn.which] = _all(turn.changes, env.ops, i, xs[turn.which], other)
            return xs

        start = [env.float(use) for use in self.uses]
        env.floats.extend(env.ops["carried"](self.steps, step, start, self.limit))


def draw_following(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A loop of one to four steps over two floats of one shape, which follow each other."""
    shape = _rows(draw, scope)
    uses = draw_use(draw, scope, shape), draw_use(draw, scope, shape)
    turns = [
        Turn(draw(st.integers(0, 1)), draw(st.booleans()), _draw_changes(draw, 1))
        for _ in range(draw(st.integers(1, 3)))
    ]
    scope.floats += [shape, shape]
    return Following(uses, draw(st.integers(1, 4)), _draw_limit(draw), tuple(turns))


def _rows(draw: Draw, scope: Scope) -> Shape:
    """The shape of some float, as an array that has rows."""
    drawn = scope.floats[draw_use(draw, scope).index]
    return drawn if drawn and drawn[0] else (4,)


def _draw_limit(draw: Draw) -> int | None:
    """After which step a loop ends, if before its last one."""
    limit: int | None = draw(st.sampled_from([None, None, 0, 1, 9]))
    return limit


def draw_carried(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A loop of one to four steps over one of the floats, as an array that has rows."""
    shape = _rows(draw, scope)
    use, table = draw_use(draw, scope, shape), draw_use(draw, scope, shape)
    limit = _draw_limit(draw)
    scope.floats.append(shape)
    return Carried(use, table, draw(st.integers(1, 4)), limit, _draw_changes(draw, 0))


def _draw_changes(draw: Draw, depth: int) -> tuple[Change, ...]:
    return tuple(_draw_change(draw, depth) for _ in range(draw(st.integers(1, 2))))


def _draw_change(draw: Draw, depth: int) -> Change:
    places = st.integers(-MOST, MOST)
    what = draw(st.sampled_from(["update", "cond", "switch", "within"][: 4 if depth < 2 else 1]))
    if what == "update":
        kind = draw(st.sampled_from(["set", "add", "multiply"]))
        odd = draw(st.sampled_from(["no"] * 8 + ["whole", "twice"]))
        return Update(kind, draw(places), draw(places), draw(st.booleans()), odd)
    if what == "within":
        return Within(draw(st.integers(0, 2)), _draw_changes(draw, depth + 1))
    count = 2 if what == "cond" else 3
    some = [_draw_changes(draw, depth + 1) if draw(st.booleans()) else () for _ in range(count)]
    return Choice(what, draw(places), tuple(some), draw(st.booleans()))


def _carried(steps: int, step: Callable[[Any, Any], Any], x: Any, limit: int | None) -> Any:
    if limit is None:
        return fori_loop(0, steps, step, x)

    def counted(carry: Any, _: Any) -> Any:
        i, x = carry
        return (i + 1, step(i, x)), None

    start = (np.int32(0), x)
    return scan(counted, start, length=steps, until=lambda carry: carry[0] > limit)[0][1]


def _twin_carried(steps: int, step: Callable[[Any, Any], Any], x: Any, limit: int | None) -> Any:
    for i in range(steps if limit is None else min(steps, limit + 1)):
        x = step(np.asarray(i, np.int32), x)
    return x


def _place(x: Any, i: Any) -> int:
    """A row as the library finds it: from the end if it is negative, and the nearest if there is none."""
    return int(np.clip(i, -len(x), len(x) - 1))


def _twin_at(x: Any, i: Any, kind: str, value: Any) -> Any:
    new, k = np.array(x), int(i)
    if -len(x) <= k < len(x):
        new[k] = {"set": value, "add": new[k] + value, "multiply": new[k] * value}[kind]
    return new


define_operation("row", lambda x, i: x[i], lambda x, i: np.array(x[_place(x, i)]))
define_operation("at", lambda x, i, kind, value: getattr(x.at[i], kind)(value), _twin_at)
define_operation("jitted", lambda f, i, x: jit(f)(i, x), lambda f, i, x: f(i, x))
define_operation("carried", _carried, _twin_carried)

"""Steps of random programs whose loops add to a few elements, or stack and read the rows of inner loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from fiveloop.testing.core.programs import (
    Draw,
    Env,
    Kinds,
    Scope,
    Shape,
    Step,
    Use,
    draw_int,
    draw_use,
)
from fiveloop.testing.loops.program_steps import LOOP_KINDS, How, draw_how
from fiveloop.testing.state.indices import Index, Plain
from fiveloop.testing.state.program_steps import index_of

ONE_TURN = How(reverse=False, unroll=1)


@dataclass(frozen=True)
class Addition:
    """A float added to one element of a Ref: by a step itself, by one of two branches, or by an inner loop's steps."""

    index: Index
    use: Use
    by: str

    def run(self, env: Env, ref: Any, i: Any) -> None:
        """Add, in the step `i`."""
        x = env.float(self.use)
        share = env.ops["choose"](i, x, env.ops["sin"](x))

        def add(*_: Any) -> list[Any]:
            env.ops["accumulate"](ref, index_of(self.index, env), share)
            return [share]

        def loop(j: Any, refs: Any) -> None:
            add()

        match self.by:
            case "cond":
                env.ops["cond"](i, [lambda x: [x], add], share)
            case "for_loop":
                env.ops["for_loop"](2, loop, [], ONE_TURN)
            case _:
                add()


@dataclass(frozen=True)
class Sums:
    """A loop that adds at constant places to a Ref of its own, and to one of the program's Refs if there is any."""

    nsteps: int
    state: Use
    additions: tuple[Addition, ...]
    outer: int | None
    others: tuple[Addition, ...]
    how: How

    def run(self, env: Env) -> None:
        """Append what the loop's own Ref holds in the end."""

        def body(i: Any, refs: Any) -> None:
            for addition in self.additions:
                addition.run(env, refs[0], i)
            for addition in self.others:
                assert self.outer is not None, "unreachable: a Ref is added to"
                addition.run(env, env.refs[self.outer], i)

        state = [env.float(self.state)]
        env.floats.extend(env.ops["for_loop"](self.nsteps, body, state, self.how))


def draw_sums(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A loop that adds to one to five elements, which is one more than have sums of their own."""
    shape: Shape = draw(st.sampled_from([(3,), (2, 3), (5,)]))
    state = draw_use(draw, scope, shape)
    additions = _draw_additions(draw, scope, shape)
    outer, others = None, tuple[Addition, ...]()
    refs = [k for k, held in enumerate(scope.refs) if held]
    if refs:
        outer = draw(st.sampled_from(refs))
        others = _draw_additions(draw, scope, scope.refs[outer])
    scope.floats.append(shape)
    return Sums(draw(st.integers(0, 3)), state, additions, outer, others, draw_how(draw))


def _draw_additions(draw: Draw, scope: Scope, shape: Shape) -> tuple[Addition, ...]:
    def addition() -> Addition:
        places = [Plain(draw(st.integers(-n, n - 1))) for n in shape]
        by = draw(st.sampled_from(["step", "step", "cond", "for_loop"]))
        return Addition(Index(tuple(places), shape), draw_use(draw, scope, ()), by)

    return tuple(addition() for _ in range(draw(st.integers(1, 5))))


@dataclass(frozen=True)
class Rows:
    """A scan whose steps scan and stack what those scans stack; another such scan reads the rows.

    If `limit` is the number of an integer, the inner scans end after so many steps.
    """

    carry: Use
    xs: Use
    outer: How
    inner: How
    limit: int | None

    def run(self, env: Env) -> None:
        """Append both final carries, and the rows."""
        init = env.float(self.carry)
        limit = None if self.limit is None else env.ints[self.limit]

        def product(c: Any, x: Any) -> Any:
            return env.ops["product"](c, env.fit(x, tuple(init.shape)))

        def scanned(step: Callable[[Any, Any], Any], xs: Any) -> Any:
            inner = lambda c, x: env.ops["scan"](step, c, x, self.inner, limit)
            return env.ops["scan"](inner, init, xs, self.outer, None)

        final, rows = scanned(lambda c, x: (product(c, x), env.ops["sin"](c)), env.float(self.xs))
        last, _ = scanned(lambda c, x: (product(c, x), env.ops["sum"](c)), rows)
        env.floats += [final, rows, last]


def draw_rows(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """Scans in each other of three steps each."""
    shape: Shape = draw(st.sampled_from([(2,), (2, 3), ()]))
    limit = draw_int(draw, scope) if draw(st.integers(0, 3)) == 3 else None
    carry, xs = draw_use(draw, scope, shape), draw_use(draw, scope, (3, 3))
    scope.floats += [shape, (3, 3, *shape), shape]
    return Rows(carry, xs, draw_how(draw), draw_how(draw), limit)


PLACED_KINDS = replace(
    LOOP_KINDS.plus(nested=(draw_sums, draw_rows)),
    steps=(*LOOP_KINDS.steps[:3], draw_sums, draw_rows),
)
"""Loops that add to elements at constant places, and loops in each other that stack rows, in other loops as well."""

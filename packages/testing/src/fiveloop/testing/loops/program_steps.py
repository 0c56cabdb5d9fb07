"""The steps of random programs that loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiveloop.loops import cond, for_loop, planning, scan, switch, while_loop
from fiveloop.loops.options import STEPS
from fiveloop.testing.core.programs import (
    Block,
    Draw,
    Env,
    Kinds,
    Scope,
    Shape,
    Step,
    StepKind,
    Use,
    define_operation,
    draw_block,
    draw_int,
    draw_use,
)
from fiveloop.testing.loops.carried_steps import draw_carried, draw_following
from fiveloop.testing.state.indices import Index, draw_index
from fiveloop.testing.state.program_steps import STATE_KINDS, draw_touch, index_of

SAVED = st.sampled_from([None, 1, 2, 3])
"""How many states a derivative saves at a time."""
LARGE = 0.7
"""Where a loop that watches a Ref ends."""


@dataclass(frozen=True)
class How:
    """How a loop runs: from which end, how many of its steps make a turn, with a bar, with so many saved states."""

    reverse: bool
    unroll: int
    progress: bool = False
    saved: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `for_loop` and `scan`."""
        return {
            "reverse": self.reverse,
            "unroll": self.unroll,
            "progress": self.progress,
            "checkpoints": self.saved,
        }

    def steps(self, count: int) -> Sequence[int]:
        """The counter's values."""
        return range(count - 1, -1, -1) if self.reverse else range(count)


def draw_how(draw: Draw) -> How:
    """Turns of up to four steps, which may leave some over, or be more than there are."""
    return How(draw(st.booleans()), draw(st.integers(1, 4)))


def _for(nsteps: int, body: Callable[..., None], state: Sequence[Any], how: How) -> Any:
    return for_loop(nsteps, body, list(state), **how.options)


def _twin_for(nsteps: int, body: Callable[..., None], state: Sequence[Any], how: How) -> list[Any]:
    refs = [np.array(x) for x in state]
    for i in how.steps(nsteps):
        body(np.asarray(i, np.int32), refs)
    return refs


define_operation("for_loop", _for, _twin_for)


@dataclass(frozen=True)
class ForLoop:
    """A loop over Refs of its own, which closes over everything else; the counter is an integer of its body."""

    nsteps: int
    state: tuple[Use, ...]
    block: Block
    how: How

    def run(self, env: Env) -> None:
        """Append the final states."""

        def body(i: Any, refs: Sequence[Any]) -> None:
            inner = env.inner()
            inner.ints.append(i)
            inner.refs.extend(refs)
            self.block.run(inner)

        state = [env.float(use) for use in self.state]
        env.floats.extend(env.ops["for_loop"](self.nsteps, body, state, self.how))


def draw_for(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A loop of a few steps over one to three Refs."""
    state = tuple(draw_use(draw, scope) for _ in range(draw(st.integers(1, 3))))
    shapes = [scope.floats[use.index] for use in state]
    inner = scope.inner()
    inner.ints += 1
    inner.refs.extend(shapes)
    block = draw_block(draw, inner, kinds)
    scope.floats.extend(shapes)
    return ForLoop(draw(st.sampled_from([1, 2, 3, 0])), state, block, draw_how(draw))


@dataclass(frozen=True)
class Scan:
    """A scan over slices of a float, with one carry; it closes over everything else.

    If `limit` is the number of an integer, it ends after so many steps. With `scaled`, what it runs over is made for it
    alone.
    """

    carry: Use
    xs: Use
    block: Block
    how: How
    limit: int | None
    scaled: bool = False

    def run(self, env: Env) -> None:
        """Append the final carry and the stacked outputs."""
        init, xs = env.float(self.carry), env.float(self.xs)
        if self.scaled:
            xs = xs * 0.5 - xs * xs

        def step(carry: Any, x: Any) -> tuple[Any, Any]:
            inner = env.inner()
            inner.floats += [carry, x]
            new, y = self.block.run(inner)
            return env.fit(new, tuple(init.shape)), y

        limit = None if self.limit is None else env.ints[self.limit]
        env.floats.extend(env.ops["scan"](step, init, xs, self.how, limit))


def draw_scan(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A scan of three steps, or of fewer."""
    carry = draw_use(draw, scope)
    shape = scope.floats[carry.index]
    xs = draw_use(draw, scope, draw(st.sampled_from([(3,), (3, 3)])))
    assert xs.shape is not None
    inner = scope.inner()
    inner.floats += [shape, xs.shape[1:]]
    block = draw_block(draw, inner, kinds)
    limit = draw_int(draw, scope) if draw(st.integers(0, 3)) == 3 else None
    scope.floats += [shape, (3, *inner.floats[block.outs[1]])]
    return Scan(carry, xs, block, draw_how(draw), limit, draw(st.booleans()))


@dataclass(frozen=True)
class Branch:
    """One of several blocks, by an integer; they give floats of the same shapes."""

    name: str
    integer: int
    blocks: tuple[Block, ...]
    shapes: tuple[Shape, ...]
    operand: Use

    def run(self, env: Env) -> None:
        """Append the results of the block chosen."""

        def branch(block: Block) -> Callable[[Any], list[Any]]:
            def run(x: Any) -> list[Any]:
                inner = env.inner()
                inner.floats.append(x)
                outs = block.run(inner)
                return [env.fit(y, s) for y, s in zip(outs, self.shapes, strict=True)]

            return run

        operand = env.float(self.operand)
        branches = [branch(block) for block in self.blocks]
        env.floats.extend(env.ops[self.name](env.ints[self.integer], branches, operand))


def draw_branch(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A cond of two blocks, or a switch of three."""
    operand = draw_use(draw, scope)
    name, count = draw(st.sampled_from([("cond", 2), ("switch", 3)]))
    blocks: list[Block] = []
    shapes: tuple[Shape, ...] = ()
    for _ in range(count):
        inner = scope.inner()
        inner.floats.append(scope.floats[operand.index])
        blocks.append(draw_block(draw, inner, kinds))
        shapes = shapes or tuple(inner.floats[k] for k in blocks[0].outs)
    integer = draw_int(draw, scope)
    scope.floats.extend(shapes)
    return Branch(name, integer, tuple(blocks), shapes, operand)


@dataclass(frozen=True)
class While:
    """A while loop that counts up to a run-time integer, with one float carried.

    It may have a `bound` that is larger. If it watches some of a Ref, it ends when that is large. Its float may have a
    pole when it has ended, where another lane of a batch goes on.
    """

    integer: int
    carry: Use
    block: Block
    how: How
    bound: int | None = None
    watched: tuple[int, Index] | None = None
    pole: bool = False

    def run(self, env: Env) -> None:
        """Append the carried float."""
        init = env.float(self.carry)

        def step(i: Any, carry: Any) -> Any:
            inner = env.inner()
            inner.ints.append(i)
            inner.floats.append(carry)
            out = env.fit(self.block.run(inner)[0], tuple(init.shape))
            return out * env.ops["one"](limit - i) if self.pole else out

        def is_small() -> Any:
            if self.watched is None:
                return True
            ref, index = self.watched
            read = env.ops["read"](env.refs[ref], index_of(index, env))
            return env.ops["sum"](read) < LARGE

        limit = env.ints[self.integer]
        options = {
            "progress": self.how.progress,
            "checkpoints": self.how.saved,
            "max_steps": self.bound,
        }
        env.floats.append(env.ops["while_loop"](limit, is_small, step, init, options))


def draw_while(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A while loop of at most six steps."""
    carry = draw_use(draw, scope)
    integer = draw_int(draw, scope)
    watched = None
    if scope.refs and draw(st.booleans()):
        ref = draw(st.integers(0, len(scope.refs) - 1))
        watched = ref, draw_index(draw, scope, scope.refs[ref])
    inner = scope.inner()
    inner.ints += 1
    inner.floats.append(scope.floats[carry.index])
    block = draw_block(draw, inner, kinds)
    scope.floats.append(scope.floats[carry.index])
    how = How(reverse=False, unroll=1, saved=draw(SAVED))
    return While(integer, carry, block, how, watched=watched)


def draw_bounded(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """The same with a bound, which makes it differentiable in both modes."""
    step = draw_while(draw, scope, kinds)
    assert isinstance(step, While)
    return replace(step, bound=8)


def _while(
    limit: Any,
    is_small: Callable[[], Any],
    step: Callable[..., Any],
    init: Any,
    options: dict[str, Any],
) -> Any:
    def body(state: Any) -> Any:
        i, x = state
        return i + 1, step(i, x)

    goes_on = lambda state: (state[0] < limit) & is_small()
    return while_loop(goes_on, body, (np.int32(0), init), **options)[1]


def _twin_while(
    limit: Any,
    is_small: Callable[[], Any],
    step: Callable[..., Any],
    init: Any,
    options: dict[str, Any],
) -> Any:
    x = init
    for i in range(int(limit)):
        if not is_small():
            break
        x = step(np.asarray(i, np.int32), x)
    return x


def _scan(
    step: Callable[..., Any], init: Any, xs: Any, how: How, limit: Any | None
) -> tuple[Any, Any]:
    if limit is None:
        return scan(step, init, xs, **how.options)

    def counted(carry: Any, x: Any) -> tuple[Any, Any]:
        k, c = carry
        new, y = step(c, x)
        return (k + 1, new), y

    until = lambda carry: carry[0] >= limit
    (_, final), ys, _ = scan(counted, (np.int32(0), init), xs, until=until, **how.options)
    return final, ys


def _twin_scan(
    step: Callable[..., Any], init: Any, xs: Any, how: How, limit: Any | None
) -> tuple[Any, Any]:
    carry = init
    ys: list[Any] = [None] * len(xs)
    for taken, k in enumerate(how.steps(len(xs)), 1):
        carry, ys[k] = step(carry, xs[k])
        if limit is not None and taken >= limit:
            break
    blank = np.zeros_like(next(y for y in ys if y is not None))
    return carry, np.stack([blank if y is None else y for y in ys])


define_operation("scan", _scan, _twin_scan)
define_operation(
    "cond",
    lambda i, fs, x: cond(i > 0, fs[1], fs[0], x),
    lambda i, fs, x: fs[1](x) if i > 0 else fs[0](x),
)
define_operation("switch", switch, lambda i, fs, x: fs[max(0, min(int(i), len(fs) - 1))](x))
define_operation("while_loop", _while, _twin_while)
define_operation("one", lambda left: left / left, lambda left: 1.0)

LOOP_KINDS = STATE_KINDS.plus(nested=(draw_for, draw_for, draw_scan, draw_branch, draw_carried))
"""Loops and branches that are differentiable in both modes."""
CARRIED_KINDS = STATE_KINDS.plus(nested=(draw_carried, draw_following, draw_scan))
"""Mostly loops that carry an array by value, for planning."""


WHILE_KINDS = LOOP_KINDS.plus(nested=(draw_while, draw_while))
"""With `while` without a bound."""
BOUNDED_KINDS = WHILE_KINDS.plus(nested=(draw_bounded, draw_bounded))
"""And with a bound: such programs give one more result, a record of loops that were stopped."""


def draw_ending(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A while loop whose float has a pole when it has ended."""
    step = draw_while(draw, scope, WHILE_KINDS)
    assert isinstance(step, While)
    return replace(step, pole=True)


ENDING_KINDS = Kinds((draw_ending,), length=2)
"""Loops that end at a pole, one after the other."""


def of_nests(kinds: Kinds) -> Kinds:
    """Programs of loops on Refs, in whose steps there is a `while` of steps of these kinds."""

    def draw_inner(draw: Draw, scope: Scope, _: Kinds) -> Step:
        return draw_while(draw, scope, replace(kinds, depth=3))

    inner = Kinds((draw_inner, draw_touch, draw_touch))

    def draw_nest(draw: Draw, scope: Scope, _: Kinds) -> Step:
        step = draw(st.sampled_from([draw_for, draw_scan, draw_while]))(draw, scope, inner)
        assert isinstance(step, (ForLoop, Scan, While))
        return replace(step, how=replace(step.how, saved=draw(SAVED)))

    return Kinds((draw_nest, draw_touch), length=3)


@dataclass(frozen=True)
class Planned:
    """A step whose loops are traced without one of the planning steps, or without any."""

    step: Step
    off: str | None

    def run(self, env: Env) -> None:
        """What the step does."""
        with planning(False) if self.off is None else planning(**{self.off: False}):
            self.step.run(env)


def with_planned(kinds: Kinds) -> Kinds:
    """Programs some of whose loops are planned otherwise than those around them."""
    return replace(kinds, nested=tuple([_planned(kind) for kind in kinds.nested]))


def _planned(kind: StepKind) -> StepKind:
    def drawn(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
        step = kind(draw, scope, kinds)
        return Planned(step, draw(st.sampled_from([None, *STEPS]))) if draw(st.booleans()) else step

    return drawn


def with_progress(kinds: Kinds) -> Kinds:
    """Programs some of whose loops show their progress."""
    return replace(kinds, nested=tuple([_shown(kind) for kind in kinds.nested]))


def _shown(kind: StepKind) -> StepKind:
    def drawn(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
        step = kind(draw, scope, kinds)
        if not isinstance(step, (ForLoop, Scan, While)):
            return step
        return replace(step, how=replace(step.how, progress=draw(st.booleans())))

    return drawn

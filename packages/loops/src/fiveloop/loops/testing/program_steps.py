"""The steps of random programs that loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiveloop.core.testing.programs import (
    Block,
    Draw,
    Env,
    Kinds,
    Scope,
    Shape,
    Step,
    Use,
    define_operation,
    draw_block,
    draw_int,
    draw_use,
)
from fiveloop.loops import cond, for_loop, scan, switch, while_loop
from fiveloop.state.testing.program_steps import STATE_KINDS


def _for(
    nsteps: int, body: Callable[..., None], state: Sequence[Any], reverse: bool, unroll: int
) -> Any:
    return for_loop(nsteps, body, list(state), reverse=reverse, unroll=unroll)


def _twin_for(
    nsteps: int, body: Callable[..., None], state: Sequence[Any], reverse: bool, unroll: int
) -> list[Any]:
    refs = [np.array(x) for x in state]
    steps = range(nsteps)
    for i in reversed(steps) if reverse else steps:
        body(np.asarray(i, np.int32), refs)
    return refs


define_operation("for_loop", _for, _twin_for)


@dataclass(frozen=True)
class ForLoop:
    """A loop over Refs of its own, which closes over everything else; the counter is an integer of its body."""

    nsteps: int
    state: tuple[Use, ...]
    block: Block
    reverse: bool
    unroll: int

    def run(self, env: Env) -> None:
        """Append the final states."""

        def body(i: Any, refs: Sequence[Any]) -> None:
            inner = env.inner()
            inner.ints.append(i)
            inner.refs.extend(refs)
            self.block.run(inner)

        state = [env.float(use) for use in self.state]
        env.floats.extend(env.ops["for_loop"](self.nsteps, body, state, self.reverse, self.unroll))


def draw_for(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A loop of a few steps over one to three Refs."""
    state = tuple(draw_use(draw, scope) for _ in range(draw(st.integers(1, 3))))
    shapes = [scope.floats[use.index] for use in state]
    inner = scope.inner()
    inner.ints += 1
    inner.refs.extend(shapes)
    block = draw_block(draw, inner, kinds)
    scope.floats.extend(shapes)
    nsteps = draw(st.integers(1, 3))
    return ForLoop(nsteps, state, block, draw(st.booleans()), draw(st.integers(1, 2)))


@dataclass(frozen=True)
class Scan:
    """A scan over slices of a float, with one carry; it closes over everything else."""

    carry: Use
    xs: Use
    block: Block
    reverse: bool

    def run(self, env: Env) -> None:
        """Append the final carry and the stacked outputs."""
        init, xs = env.float(self.carry), env.float(self.xs)

        def step(carry: Any, x: Any) -> tuple[Any, Any]:
            inner = env.inner()
            inner.floats += [carry, x]
            new, y = self.block.run(inner)
            return env.fit(new, tuple(init.shape)), y

        env.floats.extend(env.ops["scan"](step, init, xs, self.reverse))


def draw_scan(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A scan of three steps."""
    carry = draw_use(draw, scope)
    shape = scope.floats[carry.index]
    xs = draw_use(draw, scope, draw(st.sampled_from([(3,), (3, 3)])))
    assert xs.shape is not None
    inner = scope.inner()
    inner.floats += [shape, xs.shape[1:]]
    block = draw_block(draw, inner, kinds)
    scope.floats += [shape, (3, *inner.floats[block.outs[1]])]
    return Scan(carry, xs, block, draw(st.booleans()))


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
    """A while loop that counts up to a run-time integer, with one float carried."""

    integer: int
    carry: Use
    block: Block

    def run(self, env: Env) -> None:
        """Append the carried float."""
        init = env.float(self.carry)

        def step(i: Any, carry: Any) -> Any:
            inner = env.inner()
            inner.ints.append(i)
            inner.floats.append(carry)
            return env.fit(self.block.run(inner)[0], tuple(init.shape))

        env.floats.append(env.ops["while_loop"](env.ints[self.integer], step, init))


def draw_while(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A while loop of at most six steps."""
    carry = draw_use(draw, scope)
    integer = draw_int(draw, scope)
    inner = scope.inner()
    inner.ints += 1
    inner.floats.append(scope.floats[carry.index])
    block = draw_block(draw, inner, kinds)
    scope.floats.append(scope.floats[carry.index])
    return While(integer, carry, block)


def _while(limit: Any, step: Callable[..., Any], init: Any) -> Any:
    def body(state: Any) -> Any:
        i, x = state
        return i + 1, step(i, x)

    start = np.int32(0)
    return while_loop(lambda state: state[0] < limit, body, (start, init))[1]


def _twin_while(limit: Any, step: Callable[..., Any], init: Any) -> Any:
    x = init
    for i in range(int(limit)):
        x = step(np.asarray(i, np.int32), x)
    return x


def _twin_scan(step: Callable[..., Any], init: Any, xs: Any, reverse: bool) -> tuple[Any, Any]:
    carry = init
    ys: list[Any] = [None] * len(xs)
    for k in reversed(range(len(xs))) if reverse else range(len(xs)):
        carry, ys[k] = step(carry, xs[k])
    return carry, np.stack(ys)


define_operation(
    "scan", lambda f, init, xs, reverse: scan(f, init, xs, reverse=reverse), _twin_scan
)
define_operation(
    "cond",
    lambda i, fs, x: cond(i > 0, fs[1], fs[0], x),
    lambda i, fs, x: fs[1](x) if i > 0 else fs[0](x),
)
define_operation("switch", switch, lambda i, fs, x: fs[max(0, min(int(i), len(fs) - 1))](x))
define_operation("while_loop", _while, _twin_while)

LOOP_KINDS = STATE_KINDS.plus(nested=(draw_for, draw_for, draw_scan, draw_branch))
"""Loops and branches that are differentiable in both modes."""
WHILE_KINDS = LOOP_KINDS.plus(nested=(draw_while, draw_while))
"""With `while`, which has no reverse mode."""

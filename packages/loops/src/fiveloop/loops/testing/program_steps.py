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
    Step,
    Use,
    define_operation,
    draw_block,
    draw_use,
)
from fiveloop.loops import for_loop
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


LOOP_KINDS = STATE_KINDS.plus(nested=(draw_for, draw_for))

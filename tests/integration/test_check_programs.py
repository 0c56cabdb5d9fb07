"""Checks in random programs: a lane of a batch fails where it fails alone, and not for what others do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings

from fiveloop.core import jit, vmap
from fiveloop.state import check, checkify, index_checks, user_checks
from fiveloop.testing.core.programs import (
    Draw,
    Env,
    Kinds,
    Program,
    Scope,
    Step,
    Use,
    define_operation,
    draw_use,
    programs,
)
from fiveloop.testing.loops.program_steps import LOOP_KINDS, WHILE_KINDS
from fiveloop.testing.remat.program_steps import with_checkpoints
from fiveloop.testing.state.program_steps import read_all

LANES = 3

define_operation(
    "limit", lambda x, limit: check(x.sum() < limit, f"limit {limit}"), lambda x, limit: None
)


@dataclass(frozen=True)
class Limit:
    """The sum of a float is compared with a limit."""

    use: Use
    limit: float

    def run(self, env: Env) -> None:
        """Append nothing."""
        env.ops["limit"](env.float(self.use), self.limit)


def draw_limit(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A limit of some float; no other has the same number."""
    use = draw_use(draw, scope)
    return Limit(use, 0.4 + 0.001 * len(scope.floats) + 0.01 * scope.depth)


def limited(kinds: Kinds) -> Kinds:
    """Programs in which checks fail now and then."""
    return kinds.plus(*[draw_limit] * 4)


def lanes_of(program: Program) -> list[list[Any]]:
    """The inputs of each lane: other floats, and other integers."""
    arrays = [
        np.array(x, np.float32 if x.dtype.kind == "f" else np.int32) for x in program.arrays()
    ]
    return [
        [x + np.asarray(k * (0.3 if x.dtype.kind == "f" else 2), x.dtype) for x in arrays]
        for k in range(LANES)
    ]


def first_lines(program: Program, errors: frozenset[str]) -> list[str | None]:
    """What fails in each lane alone."""
    run = jit(checkify(program.library, errors=errors))
    return [first_line(run(*lane)[0].get()) for lane in lanes_of(program)]


def first_line(message: str | None) -> str | None:
    """What has failed, and where."""
    return message and message.split("\n")[0]


def check_law_lanes_fail_alone(program: Program, errors: frozenset[str]) -> None:
    """The error of each lane of a batch is the one that it has alone; all lanes together fail if one does."""
    alone = first_lines(program, errors)
    stacked = [np.stack(xs) for xs in zip(*lanes_of(program), strict=True)]
    found, _ = jit(vmap(checkify(program.library, errors=errors)))(*stacked)
    assert [first_line(found[k].get()) for k in range(LANES)] == alone
    together, _ = jit(checkify(vmap(program.library), errors=errors))(*stacked)
    assert bool(together) == any(alone)


@settings(max_examples=5)
@given(programs(with_checkpoints(limited(LOOP_KINDS))).map(read_all))
def test_checks_of_lanes(program: Program) -> None:
    check_law_lanes_fail_alone(program, user_checks)


@settings(max_examples=3)
@given(programs(limited(WHILE_KINDS)).map(read_all))
def test_checks_of_lanes_in_while_loops(program: Program) -> None:
    check_law_lanes_fail_alone(program, user_checks)


@settings(max_examples=5)
@given(programs(LOOP_KINDS).map(read_all))
def test_checks_of_indices_of_lanes(program: Program) -> None:
    check_law_lanes_fail_alone(program, index_checks)

"""The steps of random programs that work on Refs: make them, read, write, swap and accumulate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiveloop.core import Value
from fiveloop.core.extend import ShapedArray, select, stage_closed, zeros_of
from fiveloop.state import api
from fiveloop.state.predicate.gate import follow
from fiveloop.state.refs import AbstractRef
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.program_steps import CORE_KINDS
from fiveloop.testing.core.programs import (
    LIBRARY,
    Draw,
    Env,
    Kinds,
    Program,
    Scope,
    Step,
    StepKind,
    Use,
    define_operation,
    draw_int,
    draw_use,
)
from fiveloop.testing.core.samples import Sample
from fiveloop.testing.state.indices import HostIndex, Index, draw_index, second
from fiveloop.testing.state.mask_steps import draw_masked
from fiveloop.testing.state.part_steps import draw_part


def _set(ref: Any, index: Any, x: Any) -> None:
    ref[index] = x


def _add(ref: Any, index: Any, x: Any) -> None:
    ref[index] += x


def _twin_swap(ref: Any, index: HostIndex, x: Any) -> Any:
    old = index.read(ref)
    index.update(ref, x, second)
    return old


define_operation("new_ref", api.new_ref, np.array)
define_operation(
    "read",
    lambda ref, index: ref[index],
    lambda ref, index: np.array(ref) if index is ... else index.read(ref),
)
define_operation("write", _set, lambda ref, index, x: index.update(ref, x, second))
define_operation("accumulate", _add, lambda ref, index, x: index.update(ref, x, np.add))
define_operation("swap", api.swap, _twin_swap)
for _name, _twin in {"max": np.maximum, "min": np.minimum, "mul": np.multiply}.items():
    define_operation(
        _name,
        lambda ref, index, x, monoid=_name: api.accumulate(ref, index, x, monoid),
        lambda ref, index, x, twin=_twin: index.update(ref, x, twin),
    )
define_operation("freeze", api.freeze, np.array)


def _followed(i: Any, x: Any) -> Any:
    holds = i > 0
    value = follow(holds, x)
    return select(holds, LIBRARY["sin"](value * value), zeros_of(value.aval))


define_operation("followed", _followed, lambda i, x: np.sin(x * x) if i > 0 else np.zeros_like(x))


def index_of(index: Index, env: Env) -> Any:
    """An index as the operations of a program take it."""
    return index.library(env.ints) if env.ops is LIBRARY else HostIndex(index, env.ints)


@dataclass(frozen=True)
class NewRef:
    """A Ref that holds a float."""

    use: Use

    def run(self, env: Env) -> None:
        """Append the Ref."""
        env.refs.append(env.ops["new_ref"](env.float(self.use)))


@dataclass(frozen=True)
class Touch:
    """Read, write, swap or accumulate at an index of a Ref."""

    name: str
    ref: int
    index: Index
    use: Use | None = None

    def run(self, env: Env) -> None:
        """Touch the Ref, and append what was read."""
        operands = [] if self.use is None else [env.ops["sin"](env.float(self.use))]
        out = env.ops[self.name](env.refs[self.ref], index_of(self.index, env), *operands)
        if self.name in ("read", "swap"):
            env.floats.append(out)


@dataclass(frozen=True)
class Frozen:
    """A Ref made, accumulated into and frozen at once."""

    use: Use
    index: Index
    share: Use

    def run(self, env: Env) -> None:
        """Append what the Ref held in the end."""
        ref = env.ops["new_ref"](env.float(self.use))
        env.ops["accumulate"](ref, index_of(self.index, env), env.float(self.share))
        env.floats.append(env.ops["freeze"](ref))


@dataclass(frozen=True)
class Followed:
    """A function of a float, for the lanes in which an integer is positive; others go along with one of them."""

    integer: int
    use: Use

    def run(self, env: Env) -> None:
        """Append its value, or zeros."""
        env.floats.append(env.ops["followed"](env.ints[self.integer], env.float(self.use)))


def draw_followed(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A float that follows one for which a condition holds."""
    use = draw_use(draw, scope)
    scope.floats.append(scope.floats[use.index])
    return Followed(draw_int(draw, scope), use)


def with_followed(kinds: Kinds) -> Kinds:
    """Programs that also have steps whose lanes follow each other."""
    return kinds.plus(draw_followed, draw_followed)


def draw_new_ref(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A Ref made of some float."""
    use = draw_use(draw, scope)
    scope.refs.append(scope.floats[use.index])
    return NewRef(use)


TOUCHES = ("read", "write", "accumulate", "swap", "max", "min", "mul")


def draw_touch(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """Something done to a Ref, at any index; the Ref is made first if there is none."""
    if not scope.refs:
        return draw_new_ref(draw, scope, kinds)
    ref = len(scope.refs) - 1 - draw(st.integers(0, len(scope.refs) - 1))
    index = draw_index(draw, scope, scope.refs[ref])
    name = draw(st.sampled_from(TOUCHES))
    use = None if name == "read" else draw_use(draw, scope, index.result_shape)
    if name in ("read", "swap"):
        scope.floats.append(index.result_shape)
    return Touch(name, ref, index, use)


def draw_frozen(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A Ref's whole life."""
    use = draw_use(draw, scope)
    shape = scope.floats[use.index]
    index = draw_index(draw, scope, shape)
    share = draw_use(draw, scope, index.result_shape)
    scope.floats.append(shape)
    return Frozen(use, index, share)


def read_all(program: Program) -> Program:
    """The program with the final contents of the Refs that it makes at the top among its results."""
    reads: list[Step] = []
    ref = len(program.ref_shapes)
    for step in program.block.steps:
        if isinstance(step, NewRef):
            reads.append(Touch("read", ref, Index((), ())))
            ref += 1
    count = _num_floats(program)
    outs = (*program.block.outs, *range(count, count + len(reads)))
    block = replace(program.block, steps=(*program.block.steps, *reads), outs=outs)
    return replace(program, block=block)


def _num_floats(program: Program) -> int:
    """How many floats the program has in the end: the last result is the newest but one."""
    return max(program.block.outs) + 1


def with_refs(program: Program, dtype: Any = np.float64) -> Sample:
    """The program as a jaxpr that takes Refs, with Cells for them."""
    arrays = program.arrays(dtype)
    first_ref = len(program.shapes) + len(program.ints)
    avals: list[Any] = [ShapedArray(x.shape, x.dtype) for x in arrays]
    avals[first_ref:] = map(AbstractRef, avals[first_ref:])

    def run(*args: Value) -> list[Any]:
        return program.library(*args)

    jaxpr = stage_closed(run, avals, "program")
    cells = [Cell(x) for x in arrays[first_ref:]]
    return Sample(jaxpr, (*arrays[:first_ref], *cells))


def _of_some_ref(step: StepKind) -> StepKind:
    """A step that works on a Ref; the Ref is made first if there is none."""

    def drawn(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
        return step(draw, scope, kinds) if scope.refs else draw_new_ref(draw, scope, kinds)

    return drawn


STATE_KINDS = CORE_KINDS.plus(
    draw_new_ref,
    draw_frozen,
    *[draw_touch] * 6,
    *[_of_some_ref(draw_part)] * 2,
    _of_some_ref(draw_masked),
)

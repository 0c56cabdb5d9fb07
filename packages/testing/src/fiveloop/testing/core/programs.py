"""Random well-typed programs, run twice: on fiveloop's values, and by an independent twin on NumPy arrays.

A program is a list of steps. Each step is written once, in terms of named operations; the library's machine
and the twin's give these operations their two meanings. Packages add steps and operations of their own.
Programs are smooth and bounded, so that difference quotients tell their derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from hypothesis import strategies as st

from fiveloop.testing.core.samples import Sample, sample

Shape: TypeAlias = "tuple[int, ...]"
Draw: TypeAlias = "Callable[[st.SearchStrategy[Any]], Any]"
Operation: TypeAlias = "Callable[..., Any]"

SHAPES: tuple[Shape, ...] = ((), (3,), (4,), (2, 3), (3, 3))
INDEX_RANGE = 6
"""Run-time integers stay small: often valid indices, from either end, and sometimes neither."""

LIBRARY: dict[str, Operation] = {}
TWIN: dict[str, Operation] = {}


def define_operation(name: str, library: Operation, twin: Operation) -> None:
    """Give an operation its meaning on fiveloop's values and on NumPy arrays."""
    LIBRARY[name] = library
    TWIN[name] = twin


@dataclass
class Env:
    """What a program has computed so far: floats, integers without axes, Refs, streams of random numbers.

    And the meaning of operations.
    """

    ops: dict[str, Operation]
    floats: list[Any]
    ints: list[Any]
    refs: list[Any] = field(default_factory=list)
    streams: list[Any] = field(default_factory=list)

    def inner(self) -> Env:
        """The same values, for a nested block; Refs and streams are shared."""
        lists = (self.floats, self.ints, self.refs, self.streams)
        return Env(self.ops, *map(list, lists))

    def float(self, use: Use) -> Any:
        """A float operand, brought to the shape wanted."""
        return self.fit(self.floats[use.index], use.shape)

    def fit(self, x: Any, shape: Shape | None) -> Any:
        """Any array in a given shape: what does not fit is summed up and repeated."""
        if shape is None or tuple(x.shape) == tuple(shape):
            return x
        return self.ops["broadcast_to"](self.ops["scale"](self.ops["sum"](x), 0.3), shape)


@dataclass(frozen=True)
class Use:
    """A float operand: which one, and in what shape."""

    index: int
    shape: Shape | None = None


class Step(Protocol):
    """One instruction of a program."""

    def run(self, env: Env) -> None:
        """Compute, and append results to the environment."""


@dataclass(frozen=True)
class Block:
    """Steps, and which floats they give in the end."""

    steps: tuple[Step, ...]
    outs: tuple[int, ...]

    def run(self, env: Env) -> list[Any]:
        """The results, in the order of `outs`; `env` is changed."""
        for step in self.steps:
            step.run(env)
        return [env.floats[k] for k in self.outs]


@dataclass
class Scope:
    """What a program that is being drawn has at hand: shapes of floats and Refs, how many integers and streams."""

    floats: list[Shape]
    ints: int
    refs: list[Shape] = field(default_factory=list)
    depth: int = 0
    streams: int = 0

    def inner(self) -> Scope:
        """The scope of a nested block."""
        return Scope(list(self.floats), self.ints, list(self.refs), self.depth + 1, self.streams)


StepKind: TypeAlias = "Callable[[Draw, Scope, Kinds], Step]"


@dataclass(frozen=True)
class Kinds:
    """The kinds of steps that programs are made of, how deep blocks nest, and how long they are."""

    steps: tuple[StepKind, ...]
    nested: tuple[StepKind, ...] = ()
    depth: int = 2
    length: int = 7

    def plus(self, *steps: StepKind, nested: Sequence[StepKind] = ()) -> Kinds:
        """More kinds of steps."""
        return replace(self, steps=(*self.steps, *steps), nested=(*self.nested, *nested))


def draw_use(draw: Draw, scope: Scope, shape: Shape | None = None) -> Use:
    """Some float, in the given shape or its own; the newest first, so that programs shrink well."""
    count = len(scope.floats)
    index = count - 1 - draw(st.integers(0, count - 1))
    return Use(index, shape)


def draw_int(draw: Draw, scope: Scope) -> int:
    """Some integer of the scope."""
    return int(draw(st.integers(0, scope.ints - 1)))


def draw_block(draw: Draw, scope: Scope, kinds: Kinds, outs: int = 2) -> Block:
    """Some steps; they extend the scope."""
    steps: list[Step] = []
    for _ in range(draw(st.integers(2, kinds.length if scope.depth == 0 else 4))):
        nests = kinds.nested and scope.depth < kinds.depth and draw(st.integers(0, 2)) == 0
        kind = draw(st.sampled_from(kinds.nested if nests else kinds.steps))
        steps.append(kind(draw, scope, kinds))
    last = len(scope.floats) - 1
    return Block(tuple(steps), tuple(max(0, last - k) for k in range(outs)))


@dataclass(frozen=True)
class Program:
    """A block, with the shapes of its float inputs, which are drawn by a seed, and its integer inputs."""

    block: Block
    shapes: tuple[Shape, ...]
    ints: tuple[int, ...]
    ref_shapes: tuple[Shape, ...] = ()
    seed: int = 0

    def arrays(self, dtype: Any = np.float64) -> list[np.ndarray[Any, Any]]:
        """The inputs: floats, integers, then what the Refs hold at first."""
        rng = np.random.default_rng(self.seed)
        floats = [np.asarray(rng.uniform(-1.2, 1.2, s)).astype(dtype) for s in self.shapes]
        held = [np.asarray(rng.uniform(-1.2, 1.2, s)).astype(dtype) for s in self.ref_shapes]
        return [*floats, *[np.asarray(i, np.int32) for i in self.ints], *held]

    def run(self, ops: dict[str, Operation], *args: Any) -> list[Any]:
        """The results on values (arrays, and Refs last) under a meaning of operations."""
        num_floats, num_ints = len(self.shapes), len(self.ints)
        refs = list(args[num_floats + num_ints :])
        ints = list(args[num_floats : num_floats + num_ints])
        return self.block.run(Env(ops, list(args[:num_floats]), ints, refs))

    def library(self, *args: Any) -> list[Any]:
        """The program as a function of fiveloop's values."""
        return self.run(LIBRARY, *args)

    def twin(self, *args: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """The program in NumPy; then what the Refs hold in the end."""
        own = [np.array(x) for x in args]
        with np.errstate(all="ignore"):
            outs = self.run(TWIN, *own)
        held = own[len(self.shapes) + len(self.ints) :]
        return [np.array(x) for x in [*outs, *held]]

    def sample(self, dtype: Any = np.float64) -> Sample:
        """The program as a jaxpr with its inputs; it takes no Refs."""
        return sample(self.library, *self.arrays(dtype))


def programs(kinds: Kinds, *, refs: bool = False) -> st.SearchStrategy[Program]:
    """Programs made of these kinds of steps; with `refs`, some of the inputs are Refs."""

    @st.composite
    def build(draw: Draw) -> Program:
        shapes = tuple(draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3)))
        ints = tuple(draw(st.lists(st.integers(-INDEX_RANGE, INDEX_RANGE), min_size=1, max_size=2)))
        nonscalar = st.sampled_from(SHAPES[1:])
        held = tuple(draw(st.lists(nonscalar, min_size=1, max_size=2))) if refs else ()
        scope = Scope(list(shapes), len(ints), list(held))
        block = draw_block(draw, scope, kinds)
        return Program(block, shapes, ints, held, draw(st.integers(0, 1000)))

    return build()

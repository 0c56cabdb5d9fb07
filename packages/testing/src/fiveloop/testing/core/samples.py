"""Samples: a jaxpr with arguments for the oracle; running one leaves the arguments as they were."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from fiveloop.core.arrays.array import Value, as_value
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.jaxpr import Jaxpr
from fiveloop.core.pytree import tree_flatten, tree_leaves, tree_unflatten
from fiveloop.core.trace.stage import stage
from fiveloop.testing.core.lanes import lane_axes
from fiveloop.testing.core.oracle import Cell, run_jaxpr

R = TypeVar("R")
HostArray = np.ndarray[Any, Any]
Argument = HostArray | Cell


@dataclass(frozen=True)
class Sample:
    """A jaxpr and arguments for it: NumPy arrays, and Cells for its Refs."""

    jaxpr: Jaxpr
    args: tuple[Argument, ...]
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def run(self) -> list[HostArray]:
        """The results by the oracle, then the final contents of the Cells among the arguments; computed once."""
        return list(self.remember("run", lambda: run_purely(self.jaxpr, self.args)))

    def remember(self, key: Hashable, make: Callable[[], R]) -> R:
        """What several laws compare with, made once for a key and the lanes."""
        found = self._made.get((key, lane_axes()))
        if found is None:
            found = self._made[key, lane_axes()] = make()
        made: R = found
        return made


def sample(fun: Callable[..., Any], *args: Any) -> Sample:
    """A function of pytrees as a sample; values that it closes over become constants."""
    leaves, treedef = tree_flatten(args)
    values = [as_value(x) for x in leaves]

    def flat(*xs: Value) -> list[Any]:
        return tree_leaves(fun(*tree_unflatten(treedef, xs)))

    # jaxpr : [*leaves of args] -> [*leaves of the result]
    jaxpr = stage(flat, [x.aval.strong() for x in values], getattr(fun, "__name__", "")).closed()
    return Sample(jaxpr, tuple(np.array(x) for x in values))


def copied(x: Argument) -> Argument:
    """An argument that may be changed without harm to the original."""
    return Cell(x.array.copy()) if isinstance(x, Cell) else x


def contents(x: Argument) -> HostArray:
    """The elements of an argument."""
    return x.array if isinstance(x, Cell) else x


def like(x: Argument, elements: HostArray) -> Argument:
    """An argument of the kind of `x`, with other elements."""
    return Cell(elements.copy()) if isinstance(x, Cell) else elements


def run_purely(jaxpr: Jaxpr, args: Sequence[Argument]) -> list[HostArray]:
    """The results of a jaxpr by the oracle, then the final contents of its Cells; `args` stay as they are."""
    own = [copied(x) for x in args]
    outs = run_jaxpr(jaxpr, own)
    return [np.array(contents(x)) for x in [*outs, *[x for x in own if isinstance(x, Cell)]]]


def is_float(aval: Aval) -> bool:
    """Whether a type has tangents."""
    return aval.differentiable


def random_like(x: Argument, rng: np.random.Generator) -> Argument:
    """An argument of the same type with random elements of both signs."""
    array = contents(x)
    drawn: Any = rng.standard_normal(array.shape)
    if array.dtype.kind == "c":
        drawn = drawn + 1j * rng.standard_normal(array.shape)
    return like(x, np.asarray(drawn).astype(array.dtype))

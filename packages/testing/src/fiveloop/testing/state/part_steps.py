"""The steps of random programs that work on parts of Refs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiveloop.core import closed_call
from fiveloop.state import api
from fiveloop.testing.core.programs import (
    LIBRARY,
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
from fiveloop.testing.state.indices import HostIndex, Index, draw_index, second, update

HostArray = np.ndarray[Any, Any]
Action = Callable[[Any, Any, Any], Any]


class HostPart:
    """A part of a NumPy array, which NumPy has no views for: the numbers of its elements in the array.

    What is read is where the part fits; what is written may lie outside, and has the number -1 then.
    """

    def __init__(self, base: HostArray, numbers: HostArray, written: HostArray) -> None:
        self.base = base
        self.numbers = numbers
        self.written = written

    def at(self, index: Any) -> HostPart:
        """A part of the part, or all of it in another layout."""
        if isinstance(index, HostIndex):
            return HostPart(self.base, index.read(self.numbers), index.written(self.written))
        return HostPart(self.base, index(self.numbers), index(self.written))

    def read(self) -> HostArray:
        """What it holds."""
        return np.asarray(self.base.flat[self.numbers.ravel()]).reshape(self.numbers.shape)

    def write(self, x: HostArray) -> None:
        """Write to it; of several writes to one element the last stays."""
        update(self.base, self.written, x, second)

    def accumulate(self, x: HostArray) -> None:
        """Add to it, as often as it names an element."""
        update(self.base, self.written, x, np.add)

    def swap(self, x: HostArray) -> HostArray:
        """Write to it, and give what it held."""
        old = self.read()
        self.write(x)
        return old


def _host_part(ref: HostArray, indices: Sequence[Any]) -> HostPart:
    numbers = np.arange(ref.size).reshape(ref.shape)
    part = HostPart(ref, numbers, numbers)
    for index in indices:
        part = part.at(index)
    return part


def _act(name: str, part: Any, index: Any, x: Any) -> Any:
    """What is done at an index of a part."""
    if name == "read":
        return part[index]
    if name == "swap":
        return api.swap(part, index, x)
    if name == "write":
        part[index] = x
    else:
        part[index] += x
    return None


def _library_part(ref: Any, indices: Sequence[Any]) -> Any:
    for index in indices:
        ref = index(ref) if callable(index) else ref.at[index]
    return ref


def _on_part(name: str, ref: Any, indices: Sequence[Any], x: Any) -> Any:
    *outer, last = indices
    return _act(name, _library_part(ref, outer), last, x)


def _in_call(name: str, ref: Any, indices: Sequence[Any], x: Any) -> Any:
    """As `_on_part`, in a call that takes the part."""
    *outer, last = indices
    return closed_call(lambda part, x: _act(name, part, last, x))(_library_part(ref, outer), x)


def _on_host(name: str, ref: HostArray, indices: Sequence[Any], x: Any) -> Any:
    part = _host_part(ref, indices)
    return part.read() if name == "read" else getattr(part, name)(x)


define_operation("on part", _on_part, _on_host)
define_operation("part in call", _in_call, _on_host)


@dataclass(frozen=True)
class Relaid:
    """A part in the shape given, or with its axes in reverse order: it stands between two indices."""

    result_shape: Shape
    turned: bool

    def __call__(self, part: Any) -> Any:
        """The part in this layout."""
        return part.T if self.turned else part.reshape(self.result_shape)

    def library(self, ints: Sequence[Any]) -> Any:
        """What is applied to a Ref."""
        return self


@dataclass(frozen=True)
class TouchPart:
    """Read, write, swap or accumulate at the last index of a part that the others make."""

    how: str
    name: str
    ref: int
    indices: tuple[Index | Relaid, ...]
    use: Use | None = None

    def run(self, env: Env) -> None:
        """Touch the part, and append what was read."""
        x = None if self.use is None else env.ops["sin"](env.float(self.use))
        library = env.ops is LIBRARY
        indices = [
            HostIndex(index, env.ints)
            if isinstance(index, Index) and not library
            else index.library(env.ints)
            for index in self.indices
        ]
        if x is None and library:
            x = 0.0
        out = env.ops[self.how](self.name, env.refs[self.ref], indices, x)
        if self.name in ("read", "swap"):
            env.floats.append(out)


def _draw_layout(draw: Draw, shape: Shape) -> Relaid:
    """The axes reversed, or another shape of as many elements."""
    if draw(st.booleans()):
        return Relaid(shape[::-1], True)
    left, sizes = int(np.prod(shape)), []
    while left > 1 and draw(st.booleans()):
        sizes.append(draw(st.sampled_from([k for k in range(1, left + 1) if left % k == 0])))
        left //= sizes[-1]
    return Relaid((left, *sizes), False)


def draw_part(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """Something done to a part of a Ref; a scalar has no part but itself."""
    ref = len(scope.refs) - 1 - draw(st.integers(0, len(scope.refs) - 1))
    shape = whole = scope.refs[ref]
    indices: list[Index | Relaid] = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            indices.append(_draw_layout(draw, shape))
            shape = indices[-1].result_shape
        indices.append(draw_index(draw, scope, shape) if whole else Index((), shape))
        shape = indices[-1].result_shape
    name = draw(st.sampled_from(["read", "write", "accumulate", "swap"]))
    use = None if name == "read" else draw_use(draw, scope, shape)
    if name in ("read", "swap"):
        scope.floats.append(shape)
    how = draw(st.sampled_from(["on part", "part in call"]))
    return TouchPart(how, name, ref, tuple(indices), use)

"""The steps of random programs that work at masks: known at run time only, of any axes, at any place of an index."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiveloop.core.primitives.elementwise import add, bitwise_and, equal
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
    draw_int,
    draw_use,
)
from fiveloop.testing.state.indices import Index, Plain, RunTime
from fiveloop.testing.state.part_steps import draw_part


def _every_other(numbers: Any, start: Any) -> Any:
    """The mask of those that are even, counted from a run-time integer on."""
    return equal(bitwise_and(add(numbers, start), np.int32(1)), np.int32(0))


def _write(ref: Any, index: Any, x: Any) -> None:
    ref[index] = x


def _changed(change: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], None]:
    def run(ref: Any, index: Any, x: Any) -> None:
        ref[index] = change(ref[index], x)

    return run


define_operation("every other", _every_other, lambda numbers, start: (numbers + start) % 2 == 0)
define_operation("masked write", _write, _write)
for _name in ("iadd", "isub", "imul"):
    _run = _changed(getattr(operator, _name))
    define_operation(f"masked {_name}", _run, _run)
define_operation(
    "masked max", lambda ref, index, x: api.accumulate(ref, index, x, "max"), _changed(np.maximum)
)
_NAMES = ("write", "iadd", "isub", "imul", "max")


@dataclass(frozen=True)
class TouchMasked:
    """Write at a mask of `shape` that stands between other items, or combine with what is there.

    The value has one element for each that the mask chooses from if `axis` is where the chosen elements stand; if it is
    None, all that are chosen share it.
    """

    name: str
    ref: int
    before: Index
    shape: Shape
    after: Index
    integer: int
    axis: int | None
    use: Use

    def run(self, env: Env) -> None:
        """Touch what the mask chooses."""
        numbers = np.arange(np.prod(self.shape), dtype=np.int32).reshape(self.shape)
        if env.ops is not LIBRARY and any(
            index.is_outside(env.ints) for index in (self.before, self.after)
        ):
            return
        mask = env.ops["every other"](numbers, env.ints[self.integer])
        x = env.ops["sin"](env.float(self.use))
        if env.ops is not LIBRARY and self.axis is not None:
            x = np.compress(mask, x, self.axis)
        env.ops[f"masked {self.name}"](env.refs[self.ref], self._index(env, mask), x)

    def _index(self, env: Env, mask: Any) -> Any:
        read = Index.library if env.ops is LIBRARY else Index.twin
        return (*read(self.before, env.ints), mask, *read(self.after, env.ints))


def draw_masked(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """Something written where a mask holds; to a scalar, in a part of it."""
    ref = len(scope.refs) - 1 - draw(st.integers(0, len(scope.refs) - 1))
    shape = scope.refs[ref]
    if not shape:
        return draw_part(draw, scope, kinds)
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first + 1, len(shape)))
    before = _draw_items(draw, scope, shape[:first])
    after = _draw_items(draw, scope, shape[last:])
    masked = shape[first:last]
    one, every = (_selected(shape, before, masked, after, count) for count in (1, None))
    axis = _axis_of_chosen(_selected(shape, before, masked, after, 0))
    whole = len(masked) == 1 and axis is not None and draw(st.booleans())
    use = draw_use(draw, scope, every if whole else one)
    name = draw(st.sampled_from(_NAMES))
    integer = draw_int(draw, scope)
    return TouchMasked(name, ref, before, masked, after, integer, axis if whole else None, use)


def _draw_items(draw: Draw, scope: Scope, shape: Shape) -> Index:
    """What stands beside a mask: integers, slices and new axes, no arrays."""
    items: list[Any] = []
    for size in shape:
        kinds = ["all", "slice", *["static", "run time"] * bool(size)]
        match draw(st.sampled_from(kinds)):
            case "all":
                items.append(Plain(slice(None)))
            case "slice":
                items.append(Plain(slice(None, None, draw(st.sampled_from([2, -1, -2])))))
            case "static":
                items.append(Plain(draw(st.integers(-size, size - 1))))
            case "run time":
                items.append(RunTime(draw_int(draw, scope)))
    if draw(st.integers(0, 5)) == 0:
        items.insert(draw(st.integers(0, len(items))), Plain(None))
    return Index(tuple(items), shape)


def _selected(shape: Shape, before: Index, masked: Shape, after: Index, count: int | None) -> Shape:
    """The shape of what NumPy selects if the mask holds for so many elements, or for all."""
    mask = np.zeros(masked, np.bool_)
    mask.flat[:count] = True
    ints: Sequence[int] = [0] * 64
    return tuple(np.empty(shape)[(*before.twin(ints), mask, *after.twin(ints))].shape)


def _axis_of_chosen(shape: Shape) -> int | None:
    """Where the chosen elements stand, by the shape of what is selected if there are none; None if it is not clear."""
    return shape.index(0) if shape.count(0) == 1 else None

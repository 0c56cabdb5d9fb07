"""Steps of random programs that talk across a named axis: a program is one lane, its twin one of several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiveloop.core.api.flatten import ShapeDtype
from fiveloop.core.api.staging import make_jaxpr
from fiveloop.core.ir.axes import NamedAxis
from fiveloop.core.primitives import collectives as c
from fiveloop.core.primitives import elementwise as e
from fiveloop.testing.core.lanes import Lanes, this_lane
from fiveloop.testing.core.programs import (
    Draw,
    Env,
    Kinds,
    Program,
    Scope,
    Shape,
    Step,
    Use,
    define_operation,
    draw_use,
)
from fiveloop.testing.core.samples import Sample

AXIS = NamedAxis("lanes", 3)
_PERM = [(0, 2), (1, 0)]
_GROUPS = [[0, 2], [1]]


def _rows(x: Any, what: str) -> tuple[list[Any], int]:
    """What all lanes have, and the number of this one."""
    everyone, here = this_lane([AXIS])
    offers = everyone.exchange(here, what, x)
    return [offers[(k,)] for k in range(AXIS.size)], here[0]


def _twin(one_lane: Callable[[Sequence[Any], int], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        rows, at = _rows(x, str(one_lane))
        return np.asarray(one_lane(rows, at)).astype(x.dtype)

    return run


def _received(rows: Sequence[Any], at: int) -> Any:
    senders = [source for source, destination in _PERM if destination == at]
    return rows[senders[0]] if senders else 0 * rows[0]


def _of_group(rows: Sequence[Any], at: int) -> Any:
    group = next(g for g in _GROUPS if at in g)
    return sum(rows[k] for k in group) * rows[0].dtype.type(0.5)


define_operation(
    "lanes mean", lambda x: c.pmean(x, "lanes"), _twin(lambda rows, at: np.mean(rows, axis=0))
)
define_operation(
    "lanes greatest", lambda x: c.pmax(x, "lanes"), _twin(lambda rows, at: np.max(rows, axis=0))
)
define_operation(
    "lanes group",
    lambda x: e.mul(c.psum(x, "lanes", axis_index_groups=_GROUPS), 0.5),
    _twin(_of_group),
)
define_operation("lanes send", lambda x: c.ppermute(x, "lanes", _PERM), _twin(_received))
define_operation(
    "lanes number",
    lambda x: e.mul(e.mul(x, 0.4), c.axis_index("lanes")),
    _twin(lambda rows, at: rows[at] * rows[at].dtype.type(0.4) * at),
)
define_operation(
    "lanes gather", lambda x: c.all_gather(x, "lanes"), _twin(lambda rows, at: np.stack(rows))
)
define_operation(
    "lanes scatter",
    lambda x: e.mul(c.psum_scatter(x, "lanes"), 0.3),
    _twin(lambda rows, at: sum(row[at] for row in rows) * rows[0].dtype.type(0.3)),
)
define_operation(
    "lanes exchange",
    lambda x: c.all_to_all(x, "lanes", 0, 0),
    _twin(lambda rows, at: np.stack([row[at] for row in rows])),
)
SAME_SHAPE = ("lanes mean", "lanes greatest", "lanes group", "lanes send", "lanes number")
OTHER_SHAPE: dict[str, tuple[Shape, Shape]] = {
    "lanes gather": ((3,), (3, 3)),
    "lanes scatter": ((3, 3), (3,)),
    "lanes exchange": ((3,), (3,)),
}


@dataclass(frozen=True)
class Talk:
    """A collective of one float."""

    name: str
    use: Use

    def run(self, env: Env) -> None:
        """Append the result."""
        env.floats.append(env.ops[self.name](env.float(self.use)))


def draw_talk(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """One of the collectives."""
    name = draw(st.sampled_from([*SAME_SHAPE, *OTHER_SHAPE]))
    if name in OTHER_SHAPE:
        shape, out = OTHER_SHAPE[name]
        use = draw_use(draw, scope, shape)
    else:
        use = draw_use(draw, scope)
        out = scope.floats[use.index]
    scope.floats.append(out)
    return Talk(name, use)


def with_collectives(kinds: Kinds) -> Kinds:
    """Programs of these steps that talk across `AXIS`; a third of the steps do."""
    return kinds.plus(*[draw_talk] * (1 + len(kinds.steps) // 2))


def _of_lane(program: Program, lane: int) -> list[Any]:
    """The inputs of one lane: floats of its own, the integers of all."""
    return replace(program, seed=program.seed + 1000 * lane).arrays()


def lane_sample(program: Program) -> Sample:
    """The program of one lane as a jaxpr, with the inputs of all lanes in last axes; it takes no Refs."""
    every = [_of_lane(program, lane) for lane in range(AXIS.size)]
    specs = [ShapeDtype(x.shape, x.dtype) for x in every[0]]
    jaxpr = make_jaxpr(program.library, axis_env=[(AXIS.name, AXIS.size)])(*specs)
    return Sample(jaxpr, tuple(np.stack(xs, axis=-1) for xs in zip(*every, strict=True)))


def lane_twin(program: Program) -> list[Any]:
    """The results of all lanes by their twins, stacked as the sample's; LanesError where lanes part."""
    return Lanes([AXIS]).run(lambda here: program.twin(*_of_lane(program, here[0])))

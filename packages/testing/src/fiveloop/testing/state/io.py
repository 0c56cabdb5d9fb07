"""Calls of Python in random programs, and the law that they are made once, whatever is done with the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiveloop.core import Jaxpr, ShapeDtype
from fiveloop.core.extend import Split, batch_jaxpr, dce, split
from fiveloop.core.util import select_by
from fiveloop.state.discharge.engine import discharge_state
from fiveloop.state.io.api import callback, debug_callback
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.laws import (
    PLANS,
    float_inputs,
    random_tangents,
    run_compiled,
    run_jvp,
    run_linearized,
    run_vjp,
)
from fiveloop.testing.core.oracle import Cell, run_jaxpr
from fiveloop.testing.core.programs import (
    Draw,
    Env,
    Kinds,
    Scope,
    Step,
    Use,
    define_operation,
    draw_use,
)
from fiveloop.testing.core.samples import Sample, copied, random_like, run_purely

Record = tuple[int, float]
"""What a call was given: the program's first integer, which tells lanes apart, and the sum of an array."""

_records: list[Record] = []


def _record(lane: Any, x: Any) -> None:
    _records.append((int(lane), float(np.sum(x))))


def _recall(lane: Any, x: Any) -> Any:
    """A result that depends on nothing that has a derivative."""
    _record(lane, 0.0)
    return np.full(x.shape, np.cos(int(lane))).astype(x.dtype)


@contextmanager
def recording() -> Iterator[list[Record]]:
    """Within the block the list fills with what calls were given."""
    _records.clear()
    found: list[Record] = []
    try:
        yield found
    finally:
        found[:] = _records


def _library_record(lane: Any, x: Any, ordered: bool) -> None:
    debug_callback(_record, lane, x, ordered=ordered)


def _library_recall(lane: Any, x: Any, ordered: bool) -> Any:
    empty = np.zeros(x.shape, x.dtype)
    give = lambda lane: _recall(lane, empty)
    return callback(give, ShapeDtype(x.shape, x.dtype), lane, ordered=ordered)


define_operation("record", _library_record, lambda lane, x, ordered: _record(lane, x))
define_operation("recall", _library_recall, lambda lane, x, ordered: _recall(lane, x))


@dataclass(frozen=True)
class Call:
    """A call of Python: with a float, or for one."""

    name: str
    use: Use
    ordered: bool

    def run(self, env: Env) -> None:
        """Make it, and append what it gives."""
        out = env.ops[self.name](env.ints[0], env.float(self.use), self.ordered)
        if self.name == "recall":
            env.floats.append(out)


def draw_record(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A call with some float."""
    return Call("record", draw_use(draw, scope), draw(st.booleans()))


def draw_recall(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A call for a float of the shape of another."""
    use = draw_use(draw, scope)
    scope.floats.append(scope.floats[use.index])
    return Call("recall", use, draw(st.booleans()))


def with_calls(kinds: Kinds, *, results: bool = True) -> Kinds:
    """The same kinds of steps, and calls of Python, some of them for results."""
    return kinds.plus(draw_record, draw_record, *[draw_recall] * (2 * results))


def check_law_once(s: Sample, seed: int = 0, *, reverse: bool = True) -> None:
    """Every call is made once, in the same order, in the program, its derivatives and what else becomes of it.

    Without `reverse`, for programs that have no reverse mode.
    """
    want = _calls_of(lambda: run_purely(s.jaxpr, s.args))
    used = [False] * len(s.jaxpr.outvars)
    smaller, used_ins = dce(s.jaxpr, used)
    _in_order(_calls_of(lambda: run_purely(smaller, select_by(used_ins, s.args))), want, "dce")
    if not any(isinstance(x, Cell) for x in s.args):
        pure = discharge_state(s.jaxpr)
        _in_order(_calls_of(lambda: run_purely(pure, s.args)), want, "discharge")
    if any(float_inputs(s)):
        _once_in_derivatives(s, want, seed, reverse)
    _once_in_halves(s, want, seed)
    _once_a_lane(s, seed)


def _once_in_derivatives(s: Sample, want: Sequence[Record], seed: int, reverse: bool) -> None:
    rng = np.random.default_rng(seed)
    tangents = random_tangents(s, rng)
    _, dots = run_jvp(s, tangents)
    weights: list[Any] = [random_like(d, rng) for d in dots]
    _in_order(_calls_of(lambda: run_jvp(s, tangents)), want, "jvp")
    for plan in PLANS:
        _in_order(_calls_of(partial(run_linearized, s, tangents, plan)), want, "linearize")
    if reverse:
        _in_order(_calls_of(lambda: run_vjp(s, weights)), want, "vjp")


def _once_in_halves(s: Sample, want: Sequence[Record], seed: int) -> None:
    """In a split that is no derivative's, calls may be left to the staged half."""
    rng = np.random.default_rng(seed)
    for plan in PLANS:
        unknown = tuple(bool(rng.integers(0, 2)) for _ in s.args)
        cut = split(s.jaxpr, unknown, [bool(rng.integers(0, 2)) for _ in s.args], plan)
        _same(_calls_of(partial(_run_halves, s, cut)), want, f"split {unknown}")


def _run_halves(s: Sample, cut: Split) -> None:
    args = [copied(x) for x in s.args]
    known = [x for x, u in zip(args, cut.unknown_in, strict=True) if not u]
    results = run_jaxpr(cut.known, known)
    residuals = results[len(results) - len(cut.residuals) :]
    run_jaxpr(cut.staged, [*residuals, *select_by(cut.staged_in, args)])


def _once_a_lane(s: Sample, seed: int, size: int = 2) -> None:
    rng = np.random.default_rng(seed)
    if any(isinstance(x, Cell) for x in s.args):
        return
    stacked = [_lanes(np.asarray(x), size, rng) for x in s.args]
    batched, _ = batch_jaxpr(s.jaxpr, size, (True,) * len(stacked))
    want = _calls_of(lambda: [run_purely(s.jaxpr, [x[k] for x in stacked]) for k in range(size)])
    _same(_calls_of(lambda: run_purely(batched, stacked)), want, "batch")


def _lanes(x: Any, size: int, rng: np.random.Generator) -> Any:
    """Lanes that differ; an integer differs by enough to take another branch, and to be told apart."""
    if x.dtype.kind == "f":
        return x + rng.uniform(-0.5, 0.5, (size, *x.shape)).astype(x.dtype)
    return np.stack([x + np.asarray(k, x.dtype) for k in range(size)])


def check_law_once_compiled(jaxpr: Jaxpr, s: Sample) -> None:
    """A compiled program makes the calls that the oracle makes of the sample."""
    want = _calls_of(lambda: run_purely(s.jaxpr, s.args))
    _same(_calls_of(lambda: run_compiled(jaxpr, s.args)), want, "compiled", scale=1e10)


def _calls_of(run: Any) -> list[Record]:
    with recording() as found:
        run()
    return found


def _in_order(got: Sequence[Record], want: Sequence[Record], what: str) -> None:
    assert len(got) == len(want), f"{what}: {len(got)} calls instead of {len(want)}"
    assert_all_close([np.array(got)], [np.array(want)], f"{what}: calls")


def _same(got: Sequence[Record], want: Sequence[Record], what: str, scale: float = 1.0) -> None:
    assert len(got) == len(want), f"{what}: {len(got)} calls instead of {len(want)}"
    assert_all_close(
        [np.array(sorted(got))], [np.array(sorted(want))], f"{what}: calls", scale=scale
    )

"""The laws: what must hold of every program and every transform of it. Each runs jaxprs by the oracle alone.

A law takes a sample (a jaxpr with arguments) and raises an AssertionError if it does not hold. Derivatives are
compared in float64, so a sample for those has float64 arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core.arrays.array import as_value, to_array
from fiveloop.core.ir.axes import NamedAxis, axes_of, batch_axis, with_axes
from fiveloop.core.ir.jaxpr import Jaxpr, jaxprs_in
from fiveloop.core.lower.dispatch import compiled
from fiveloop.core.rules import bodies_rules
from fiveloop.core.transforms.batch import batch_jaxpr
from fiveloop.core.transforms.cost import equation_cost
from fiveloop.core.transforms.dce import dce
from fiveloop.core.transforms.jvp import jvp_jaxpr
from fiveloop.core.transforms.linearize import linearize_jaxpr
from fiveloop.core.transforms.partial_eval import Split, split
from fiveloop.core.transforms.policies import SAVE_EVERYTHING, SAVE_NOTHING, MinimumCut, SavingPlan
from fiveloop.core.transforms.transpose import transpose_jaxpr
from fiveloop.core.transforms.typecheck import typecheck
from fiveloop.core.util import Mask, select_by
from fiveloop.testing.core.compare import assert_all_close, assert_close
from fiveloop.testing.core.lanes import lane_sizes, lanes
from fiveloop.testing.core.oracle import Cell, run_jaxpr
from fiveloop.testing.core.samples import (
    Argument,
    HostArray,
    Sample,
    contents,
    copied,
    like,
    random_like,
    run_purely,
)

STEPS = ((1e-4, 1e4), (1e-6, 1e6))
"""Steps of the central differences, and how much looser than two computations of one value they are compared.

The second is for points within the first step of a kink (of `maximum`, say).
"""

PLANS = (
    SAVE_EVERYTHING,
    SAVE_NOTHING,
    SavingPlan(MinimumCut(memory_cost=100.0, share=10.0)).at_boundary(),
)
"""Plans that must all give the same values; the last makes cuts that do much again, everywhere."""


def check_law_type(s: Sample) -> None:
    """A jaxpr is well typed."""
    typecheck(s.jaxpr)


def check_law_cost(s: Sample) -> None:
    """No cost is negative, what the cut may do again has no effect, and all jaxprs in params are bodies."""
    for eqn in s.jaxpr.eqns:
        cost = equation_cost(eqn)
        assert cost.flops >= 0, f"cost: {cost} of {eqn}"
        assert cost.bytes >= 0, f"cost: {cost} of {eqn}"
        assert not (cost.again and eqn.effects), f"cost: may not be done again: {eqn}"
        bodies = bodies_rules.find(eqn.primitive)
        found = [] if bodies is None else [b.jaxpr for b in bodies(eqn.params)]
        assert set(found) == set(jaxprs_in(eqn.params)), f"bodies: {eqn}"


def check_law_eval(s: Sample, want: Sequence[Any]) -> None:
    """A jaxpr computes what an independent computation gave."""
    assert_all_close(s.run(), want, "eval: result")


def float_inputs(s: Sample) -> Mask:
    """The inputs that have tangents."""
    return tuple(a.differentiable for a in s.jaxpr.in_avals)


def random_tangents(s: Sample, rng: np.random.Generator) -> list[Argument]:
    """Tangents of the float inputs, random."""
    return [random_like(x, rng) for x in select_by(float_inputs(s), s.args)]


# forward mode


def check_law_jvp(s: Sample, seed: int = 0) -> None:
    """Tangents agree with difference quotients, and values stay what they were."""
    tangents, outs, dots = random_jvp(s, seed)
    assert_all_close(outs, s.run(), "jvp: value")
    for step, loose in STEPS:
        want = quotients(s, tangents, step)
        if _agree(dots, want, loose):
            return
    assert_all_close(dots, want, "jvp: tangent", scale=loose)


def _agree(got: Sequence[HostArray], want: Sequence[HostArray], loose: float) -> bool:
    try:
        assert_all_close(got, want, scale=loose)
    except AssertionError:
        return False
    return True


def run_jvp(s: Sample, tangents: Sequence[Argument]) -> tuple[list[HostArray], list[HostArray]]:
    """Values and tangents of the results, and of the final contents of Cells, zeros written out."""
    nonzero = float_inputs(s)
    # jaxpr_jvp : [*ins, *in_dots] -> [*outs, *float out_dots]
    jaxpr_jvp, out_nonzero = jvp_jaxpr(s.jaxpr, nonzero, inst=True)
    typecheck(jaxpr_jvp)
    results = run_purely(jaxpr_jvp, [*s.args, *tangents])
    return _in_halves(s, results, len(s.jaxpr.outvars), sum(out_nonzero))


Jvp: TypeAlias = "tuple[list[Argument], list[HostArray], list[HostArray]]"


def random_jvp(s: Sample, seed: int) -> Jvp:
    """Random tangents, and the values and tangents of the results along them: one run for all laws."""

    def run() -> Jvp:
        tangents = random_tangents(s, np.random.default_rng(seed))
        return tangents, *run_jvp(s, tangents)

    return s.remember(("jvp", seed), run)


def _in_halves(
    s: Sample, results: Sequence[HostArray], num_outs: int, num_dots: int
) -> tuple[list[HostArray], list[HostArray]]:
    """Split `[*outs, *dots, *cells, *cell_dots]` into `[*outs, *cells]` and `[*dots, *cell_dots]`."""
    cells = [x for x in s.args if isinstance(x, Cell)]
    outs, rest = list(results[:num_outs]), list(results[num_outs:])
    dots, rest = rest[:num_dots], rest[num_dots:]
    return [*outs, *rest[: len(cells)]], [*dots, *rest[len(cells) :]]


def quotients(s: Sample, tangents: Sequence[Argument], step: float) -> list[HostArray]:
    """Central differences, of fourth order, of the float results and of float Cells along a direction."""

    def at(h: float) -> list[HostArray]:
        dots = iter(tangents)
        args = [
            like(x, contents(x) + h * contents(next(dots))) if has else x
            for x, has in zip(s.args, float_inputs(s), strict=True)
        ]
        return [y for y in run_purely(s.jaxpr, args) if y.dtype.kind in "fc"]

    near = [(b - a) / (2 * step) for a, b in zip(at(-step), at(step), strict=True)]
    far = [(b - a) / (4 * step) for a, b in zip(at(-2 * step), at(2 * step), strict=True)]
    return [np.asarray((4 * n - f) / 3) for n, f in zip(near, far, strict=True)]


def check_law_linearize(s: Sample, seed: int = 0) -> None:
    """The known and the linear half together are the jvp."""
    tangents, outs, dots = random_jvp(s, seed)
    for plan in PLANS:
        got_outs, got_dots = run_linearized(s, tangents, plan)
        assert_all_close(got_outs, outs, "linearize: value")
        assert_all_close(got_dots, dots, "linearize: tangent")


def run_linearized(
    s: Sample, tangents: Sequence[Argument], plan: SavingPlan
) -> tuple[list[HostArray], list[HostArray]]:
    """Values and tangents by the known and the linear half of the jvp."""
    nonzero = float_inputs(s)
    known, linear, out_nonzero, num_res = linearize_jaxpr(s.jaxpr, nonzero, plan)
    typecheck(known)
    typecheck(linear)
    args, dots = [copied(x) for x in s.args], [copied(x) for x in tangents]
    results = run_jaxpr(known, args)
    num_outs = len(results) - num_res
    outs_dot = iter(run_jaxpr(linear, [*results[num_outs:], *dots]))
    outs = results[:num_outs]
    full = [
        next(outs_dot) if nz else np.zeros((*a.shape, *lane_sizes()), a.dtype)
        for nz, a in zip(out_nonzero, s.jaxpr.out_avals, strict=True)
        if a.differentiable
    ]
    return (
        [*outs, *[x.array for x in args if isinstance(x, Cell)]],
        [*full, *[x.array for x in dots if isinstance(x, Cell)]],
    )


# reverse mode


def check_law_transpose(s: Sample, seed: int = 0) -> None:
    """Inner products agree: of cotangents with J times tangents, of J^T times cotangents with tangents."""
    tangents, _, dots = random_jvp(s, seed)
    rng = np.random.default_rng(seed + 1)
    weights = [contents(random_like(d, rng)) for d in dots]
    back = run_vjp(s, weights)
    forward = sum(_inner(w, d) for w, d in zip(weights, dots, strict=True))
    backward = sum(_inner(b, contents(t)) for b, t in zip(back, tangents, strict=True))
    scale = sum(_inner(np.abs(w), np.abs(d)) for w, d in zip(weights, dots, strict=True))
    assert abs(forward - backward) <= 1e-9 * max(1.0, scale), (
        f"<w, Jv> = {forward}, <J'w, v> = {backward}"
    )


def _inner(x: HostArray, y: HostArray) -> float:
    return float(np.sum(x * y).real)


def run_vjp(s: Sample, weights: Sequence[HostArray]) -> list[HostArray]:
    """The cotangents of the float inputs, for those of the float results and of the final contents of Cells."""
    nonzero = float_inputs(s)
    known, linear, out_nonzero, num_res = linearize_jaxpr(s.jaxpr, nonzero)
    args = [copied(x) for x in s.args]
    results = run_jaxpr(known, args)
    residuals = results[len(results) - num_res :]
    num_floats = sum(a.differentiable for a in s.jaxpr.out_avals)
    present = select_by([a.differentiable for a in s.jaxpr.out_avals], out_nonzero)
    cts = select_by(present, weights[:num_floats])
    accumulators = iter([Cell(w.copy()) for w in weights[num_floats:]])
    is_linear = (False,) * num_res + (True,) * (len(linear.invars) - num_res)
    # linear_t : [*residuals, *accumulators, *cts] -> [*nonzero in_cts]
    linear_t, in_nonzero = transpose_jaxpr(linear, is_linear, (True,) * len(cts))
    typecheck(linear_t)
    given = [next(accumulators) for x in select_by(nonzero, s.args) if isinstance(x, Cell)]
    outs = iter(run_jaxpr(linear_t, [*residuals, *given, *cts]))
    cells = iter(given)
    return [
        next(cells).array
        if isinstance(x, Cell)
        else next(outs)
        if nz
        else np.zeros(x.shape, x.dtype)
        for x, nz in zip(select_by(nonzero, s.args), in_nonzero[num_res:], strict=True)
    ]


# batching


def check_law_batch(s: Sample, size: int = 2, seed: int = 0, most: int = 6) -> None:
    """A batched jaxpr computes what a loop over the batch does, for several choices of batched inputs."""
    rng = np.random.default_rng(seed)
    for batched in _masks(len(s.args), rng, most):
        _check_batch(s, size, batched, rng)


def _check_batch(s: Sample, size: int, batched: Mask, rng: np.random.Generator) -> None:
    # A Ref that is not batched could not hold what the lanes write to it.
    batched = tuple(b or isinstance(x, Cell) for b, x in zip(batched, s.args, strict=True))
    stacked = [_stack(x, size, rng) if b else x for x, b in zip(s.args, batched, strict=True)]
    lanes = [
        run_purely(
            s.jaxpr, [_lane(x, k) if b else x for x, b in zip(stacked, batched, strict=True)]
        )
        for k in range(size)
    ]
    # jaxpr_batch : [*ins, some with the batch in axis 0] -> [*outs with the batch in axis 0]
    jaxpr_batch, out_batched = batch_jaxpr(s.jaxpr, size, batched, inst=True)
    typecheck(jaxpr_batch)
    assert all(out_batched), "batch: outputs asked for with a batch axis have none"
    got = run_purely(jaxpr_batch, stacked)
    assert_all_close(
        got, [np.stack(lane) for lane in zip(*lanes, strict=True)], f"batch {batched}: result"
    )


def _stack(x: Argument, size: int, rng: np.random.Generator) -> Argument:
    array = contents(x)
    if array.dtype.kind in "fc":
        noise = rng.uniform(-0.5, 0.5, (size, *array.shape)).astype(array.dtype)
        return like(x, np.asarray(array + noise))
    if array.dtype == np.bool_:
        return like(x, rng.integers(0, 2, (size, *array.shape)).astype(np.bool_))
    return like(
        x, np.asarray(array + rng.integers(-1, 2, (size, *array.shape)).astype(array.dtype))
    )


def _lane(x: Argument, k: int) -> Argument:
    return like(x, contents(x)[k])


def _masks(count: int, rng: np.random.Generator, most: int) -> Iterator[Mask]:
    """Nonempty masks: all of them if they are few, else some, drawn without replacement."""
    if count <= 4:
        every = [mask for mask in product((False, True), repeat=count) if any(mask)]
        order = rng.permutation(len(every))[:most]
        yield from (every[k] for k in order)
        return
    for _ in range(most):
        mask = rng.integers(0, 2, count).astype(bool)
        mask[rng.integers(count)] = True
        yield tuple(bool(m) for m in mask)


def check_law_vjp_batch(s: Sample, size: int = 2, seed: int = 0) -> None:
    """The cotangents of a batch are those of its lanes; of what these share, the sums."""
    rng = np.random.default_rng(seed)
    batched = tuple(not f or bool(rng.integers(2)) for f in float_inputs(s))
    stacked = [_stack(x, size, rng) if b else x for x, b in zip(s.args, batched, strict=True)]
    whole = Sample(batch_jaxpr(s.jaxpr, size, batched, inst=True)[0], tuple(stacked))
    floats = [a for a in whole.jaxpr.out_avals if a.differentiable]
    weights = [rng.normal(size=a.shape).astype(a.dtype) for a in floats]
    lanes = []
    for k in range(size):
        args = (_lane(x, k) if b else x for x, b in zip(stacked, batched, strict=True))
        lanes.append(run_vjp(Sample(s.jaxpr, tuple(args)), [w[k] for w in weights]))
    own = select_by(float_inputs(s), batched)
    pairs = zip(own, zip(*lanes, strict=True), strict=True)
    want = [np.stack(found) if b else np.sum(found, axis=0) for b, found in pairs]
    assert_all_close(run_vjp(whole, weights), want, f"batch {batched}: cotangent")


def check_law_lanes(s: Sample, axes: Sequence[NamedAxis], seed: int = 0, most: int = 4) -> None:
    """A jaxpr of one lane, batched over its named axes, computes what the lanes do that talk to each other."""
    rng = np.random.default_rng(seed)
    for different in (*_masks(len(s.args), rng, most), (False,) * len(s.args)):
        args = [
            contents(x) if d else _all_like_first(contents(x), len(axes))
            for x, d in zip(s.args, different, strict=True)
        ]
        with lanes(*axes):
            want = [_lanes_in_front(y, len(axes)) for y in run_purely(s.jaxpr, args)]
        jaxpr, batched = s.jaxpr, different
        # jaxpr : [*ins] -> [*outs], with one more axis of lanes in front for each named axis, the last one first
        for axis in reversed(axes):
            inside = with_axes(jaxpr, {axis: batch_axis(axis.size)})
            jaxpr, _ = batch_jaxpr(inside, axis.size, batched, inst=True)
            typecheck(jaxpr)
        assert not axes_of(jaxpr.effects), "lanes: a bound axis is still free"
        given = [
            _lanes_in_front(x, len(axes)) if d else x[_first(axes)]
            for x, d in zip(args, different, strict=True)
        ]
        assert_all_close(run_purely(jaxpr, given), want, f"lanes {different}: result")


def _first(axes: Sequence[NamedAxis]) -> Any:
    return (..., *[0] * len(axes))


def _all_like_first(x: HostArray, count: int) -> HostArray:
    first: Any = (..., *[slice(1)] * count)
    return np.broadcast_to(x[first], x.shape)


def _lanes_in_front(x: HostArray, count: int) -> HostArray:
    return np.moveaxis(x, range(x.ndim - count, x.ndim), range(count))


# partial evaluation


def check_law_split(s: Sample, seed: int = 0, most: int = 6) -> None:
    """The known half and then the staged half compute what the whole does, for several masks and plans."""
    rng = np.random.default_rng(seed)
    for unknown in _masks(len(s.args), rng, most):
        for plan in PLANS:
            inst = tuple(bool(rng.integers(0, 2)) for _ in s.args)
            _check_split(s, split(s.jaxpr, unknown, inst, plan))


def _check_split(s: Sample, cut: Split) -> None:
    typecheck(cut.known)
    typecheck(cut.staged)
    args = [copied(x) for x in s.args]
    known_args = [x for x, u in zip(args, cut.unknown_in, strict=True) if not u]
    results = run_jaxpr(cut.known, known_args)
    num_known = len(results) - len(cut.residuals)
    staged_args = [*results[num_known:], *select_by(cut.staged_in, args)]
    staged = iter(run_jaxpr(cut.staged, staged_args))
    known = iter(results[:num_known])
    outs = [
        _half(u, i, known, staged) for u, i in zip(cut.out_unknown, cut.out_staged, strict=True)
    ]
    cells = [x for x in args if isinstance(x, Cell)]
    assert_all_close([np.array(contents(x)) for x in [*outs, *cells]], s.run(), "split: result")


def _half(unknown: bool, staged: bool, known: Iterator[Any], late: Iterator[Any]) -> Any:
    early = None if unknown else next(known)
    return next(late) if staged else early


def check_law_dce(s: Sample, seed: int = 0, most: int = 4) -> None:
    """Dead code elimination leaves the outputs used, and the effects."""
    rng = np.random.default_rng(seed)
    whole = s.run()
    num_outs = len(s.jaxpr.outvars)
    for used in _masks(num_outs, rng, most) if num_outs else ():
        smaller, used_ins = dce(s.jaxpr, used)
        typecheck(smaller)
        got = run_purely(smaller, select_by(used_ins, s.args))
        want = [*select_by(used, whole[:num_outs]), *whole[num_outs:]]
        assert_all_close(got, want, f"dce {used}: result")


# lowering


def check_law_lower(s: Sample) -> None:
    """The compiled program computes what the oracle does. The sample has no Cells."""
    assert_all_close(run_compiled(s.jaxpr, s.args), s.run(), "lower: result", scale=10.0)


def run_compiled(jaxpr: Jaxpr, args: Sequence[Argument]) -> list[HostArray]:
    """The results of the compiled program."""
    values = [to_array(as_value(x)) for x in args if not isinstance(x, Cell)]
    assert len(values) == len(args), "a compiled program is run on arrays"
    return [np.asarray(out) for out in compiled(jaxpr).run(values)]


FORWARD_LAWS = (check_law_type, check_law_jvp, check_law_linearize, check_law_transpose)
ALL_LAWS = (*FORWARD_LAWS, check_law_batch, check_law_split, check_law_dce)


def check_laws(
    s: Sample, seed: int = 0, *, quotients: bool = True, most: int | None = None
) -> None:
    """All laws that need no compiler; without `quotients` the derivative is not what differences say.

    With `most` there are so many choices of inputs and results at most.
    """
    choices = {} if most is None else {"most": most}
    check_law_type(s)
    check_law_cost(s)
    check_law_dce(s, seed, **choices)
    check_law_split(s, seed, **choices)
    check_law_batch(s, seed=seed, **choices)
    if any(float_inputs(s)):
        if quotients:
            check_law_jvp(s, seed)
        check_law_linearize(s, seed)
        check_law_transpose(s, seed)


__all__ = [
    "ALL_LAWS",
    "FORWARD_LAWS",
    "assert_close",
    "check_laws",
    "float_inputs",
    "check_law_batch",
    "check_law_cost",
    "check_law_dce",
    "check_law_eval",
    "check_law_jvp",
    "check_law_lanes",
    "check_law_linearize",
    "check_law_lower",
    "check_law_split",
    "check_law_transpose",
    "check_law_type",
    "check_law_vjp_batch",
    "quotients",
    "random_jvp",
    "random_tangents",
    "run_compiled",
    "run_jvp",
    "run_linearized",
    "run_vjp",
]

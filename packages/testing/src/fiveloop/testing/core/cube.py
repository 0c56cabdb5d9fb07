"""Transforms of samples: each gives a sample of the transformed program, so that laws hold for chains of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from fiveloop.core.arrays.array import Value
from fiveloop.core.ir.jaxpr import Jaxpr
from fiveloop.core.trace.stage import stage_closed
from fiveloop.core.transforms.batch import batch_jaxpr
from fiveloop.core.transforms.dce import dce
from fiveloop.core.transforms.eval import eval_jaxpr
from fiveloop.core.transforms.jvp import jvp_jaxpr
from fiveloop.core.transforms.linearize import linearize_jaxpr
from fiveloop.core.transforms.partial_eval import Split, split
from fiveloop.core.transforms.transpose import transpose_jaxpr
from fiveloop.core.util import select_by
from fiveloop.testing.core.lanes import lane_sizes
from fiveloop.testing.core.laws import PLANS, check_laws, float_inputs, random_tangents
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.samples import Argument, Sample, contents, like, random_like

Transform: TypeAlias = "Callable[[Sample, np.random.Generator], Sample]"


def jvp_of(s: Sample, rng: np.random.Generator) -> Sample:
    """Values and tangents."""
    jaxpr, _ = jvp_jaxpr(s.jaxpr, float_inputs(s), inst=True)
    return Sample(jaxpr, (*s.args, *random_tangents(s, rng)))


def vjp_of(s: Sample, rng: np.random.Generator) -> Sample:
    """Values and cotangents; accumulators of float Refs come after the arguments, then cotangents of results."""
    nonzero = float_inputs(s)
    known, linear, out_nonzero, num_res = linearize_jaxpr(s.jaxpr, nonzero)
    is_linear = (False,) * num_res + (True,) * (len(linear.invars) - num_res)
    linear_t, _ = transpose_jaxpr(linear, is_linear, (True,) * sum(out_nonzero))
    num_ins, num_outs = len(s.args), len(s.jaxpr.outvars)

    def run(*args: Value) -> list[Value]:
        results = eval_jaxpr(known, args[:num_ins])
        return [*results[:num_outs], *eval_jaxpr(linear_t, [*results[num_outs:], *args[num_ins:]])]

    # jaxpr : [*ins, *accumulators, *cts] -> [*outs, *in_cts]
    jaxpr = stage_closed(run, [*s.jaxpr.in_avals, *[v.aval for v in linear_t.invars[num_res:]]])
    cells = [random_like(x, rng) for x in select_by(nonzero, s.args) if isinstance(x, Cell)]
    outs = select_by(out_nonzero, s.jaxpr.out_avals)
    cts = [random_like(np.zeros((*a.shape, *lane_sizes()), a.dtype), rng) for a in outs]
    return Sample(jaxpr, (*s.args, *cells, *cts))


def batch_of(s: Sample, rng: np.random.Generator) -> Sample:
    """A batch of two, of some of the arguments."""
    batched = tuple(isinstance(x, Cell) or bool(rng.integers(0, 2)) for x in s.args)
    jaxpr, _ = batch_jaxpr(s.jaxpr, 2, batched)
    args = [_twice(x, rng) if b else x for x, b in zip(s.args, batched, strict=True)]
    return Sample(jaxpr, tuple(args))


def _twice(x: Argument, rng: np.random.Generator) -> Argument:
    array = contents(x)
    if array.dtype.kind not in "fc":
        return like(x, np.stack([array, array]))
    noise = rng.uniform(-0.5, 0.5, (2, *array.shape)).astype(array.dtype)
    return like(x, np.asarray(array + noise))


def dce_of(s: Sample, rng: np.random.Generator) -> Sample:
    """Some of the results."""
    used = [bool(rng.integers(0, 2)) for _ in s.jaxpr.outvars]
    jaxpr, used_ins = dce(s.jaxpr, used)
    return Sample(jaxpr, tuple(select_by(used_ins, s.args)))


def split_of(s: Sample, rng: np.random.Generator) -> Sample:
    """The known half and then the staged half; Refs among the arguments are unknown."""
    unknown = [isinstance(x, Cell) or bool(rng.integers(0, 2)) for x in s.args]
    plan = PLANS[rng.integers(0, len(PLANS))]
    cut = split(s.jaxpr, unknown, [True] * len(unknown), plan)
    return Sample(joined_halves(cut, s.jaxpr), s.args)


def joined_halves(cut: Split, jaxpr: Jaxpr) -> Jaxpr:
    """A jaxpr that runs the known half and then the staged half.

    joined : [*ins] -> [*outs]
    """

    def run(*args: Value) -> list[Value]:
        known_ins = [x for x, u in zip(args, cut.unknown_in, strict=True) if not u]
        results = eval_jaxpr(cut.known, known_ins)
        num_known = len(results) - len(cut.residuals)
        staged = eval_jaxpr(cut.staged, [*results[num_known:], *select_by(cut.staged_in, args)])
        early, late = iter(results[:num_known]), iter(staged)
        outs = []
        for is_unknown, is_staged in zip(cut.out_unknown, cut.out_staged, strict=True):
            known_out = None if is_unknown else next(early)
            outs.append(next(late) if is_staged else known_out)
        return [x for x in outs if x is not None]

    return stage_closed(run, jaxpr.in_avals, jaxpr.name)


TRANSFORMS: dict[str, Transform] = {
    "jvp": jvp_of,
    "vjp": vjp_of,
    "batch": batch_of,
    "dce": dce_of,
    "split": split_of,
}


FEW = 2
"""How many choices of inputs and results are enough after a chain, which varies them itself."""


def check_chain(s: Sample, names: Sequence[str], seed: int = 0) -> Sample:
    """The laws of a sample after a chain of transforms."""
    rng = np.random.default_rng(seed)
    for name in names:
        s = TRANSFORMS[name](s, rng)
    check_laws(s, seed, most=FEW)
    return s

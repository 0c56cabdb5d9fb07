"""The law of discharge: the discharged program computes the same, and no state is left in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr
from fiveloop.core.extend import PositionalEffect, batch_jaxpr, call_jaxpr, stage_closed, typecheck
from fiveloop.state.discharge.engine import discharge_state, jaxpr_holds_state
from fiveloop.state.refs import AbstractRef
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.cube import TRANSFORMS
from fiveloop.testing.core.laws import (
    check_laws,
    float_inputs,
    random_jvp,
    run_compiled,
    run_jvp,
)
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.samples import (
    Argument,
    HostArray,
    Sample,
    contents,
    like,
    run_purely,
    sample,
)


def discharged(s: Sample, which: bool | Sequence[bool] = True) -> Sample:
    """The sample with its Refs as values, their final contents among its results."""
    jaxpr = discharge_state(s.jaxpr, which)
    typecheck(jaxpr)
    chosen = [which] * len(s.args) if isinstance(which, bool) else which
    args = [
        contents(x) if isinstance(x, Cell) and w else x for x, w in zip(s.args, chosen, strict=True)
    ]
    return Sample(jaxpr, tuple(args))


def check_law_discharge(s: Sample, seed: int = 0) -> None:
    """Discharge keeps results and final contents, leaves no state, and commutes with the jvp."""
    pure = discharged(s)
    assert not jaxpr_holds_state(pure.jaxpr), "discharge: state is left"
    left = [e for e in pure.jaxpr.effects if isinstance(e, PositionalEffect)]
    assert not left, "discharge: effects on Refs are left"
    assert_all_close(pure.run(), s.run(), "discharge: result")
    if any(float_inputs(s)):
        tangents, want_outs, want_dots = random_jvp(s, seed)
        outs, dots = run_jvp(pure, [contents(t) for t in tangents])
        assert_all_close(outs, want_outs, "discharge, jvp: value")
        assert_all_close(dots, want_dots, "discharge, jvp: tangent")


def check_law_discharge_commutes(s: Sample, seed: int = 0) -> None:
    """Discharge comes to the same before and after a batch and a call, and obeys its laws after every transform."""
    rng = np.random.default_rng(seed)
    pure = discharged(s)
    every = (True,) * len(s.args)
    batched = Sample(batch_jaxpr(s.jaxpr, 2, every, True)[0], _two_lanes(s.args, rng))
    late = Sample(batch_jaxpr(pure.jaxpr, 2, every, True)[0], tuple(map(contents, batched.args)))
    assert_all_close(discharged(batched).run(), late.run(), "discharge, batch: result")
    called = Sample(stage_closed(lambda *xs: call_jaxpr(s.jaxpr, xs), s.jaxpr.in_avals), s.args)
    assert_all_close(discharged(called).run(), pure.run(), "discharge, call: result")
    for transform in TRANSFORMS.values():
        transformed = transform(s, rng)
        check_law_discharge(transformed, seed)
        check_law_partial_discharge(transformed, seed, most=1)


def _two_lanes(args: Sequence[Argument], rng: np.random.Generator) -> tuple[Argument, ...]:
    """Each argument, and one like it beside it."""
    arrays = [np.atleast_1d(contents(x)) for x in args]
    others = [
        rng.permutation(a).reshape(contents(x).shape) for a, x in zip(arrays, args, strict=True)
    ]
    return tuple(like(x, np.stack([contents(x), y])) for x, y in zip(args, others, strict=True))


def check_law_partial_discharge(s: Sample, seed: int = 0, most: int = 3) -> None:
    """Discharging some of the Refs that a jaxpr takes leaves the others as they are, for several choices of them."""
    refs = [isinstance(a, AbstractRef) for a in s.jaxpr.in_avals]
    choices = [mask for mask in product((False, True), repeat=sum(refs)) if not all(mask)]
    for k in np.random.default_rng(seed).permutation(len(choices))[:most]:
        _check_partial_discharge(s, refs, iter(choices[k]))


def _check_partial_discharge(s: Sample, refs: Sequence[bool], chosen: Iterator[bool]) -> None:
    which = [r and next(chosen) for r in refs]
    some = discharged(s, which)
    got = run_purely(some.jaxpr, some.args)
    num_outs = len(s.jaxpr.outvars)
    values, cells = iter(got[num_outs:][: sum(which)]), iter(got[num_outs + sum(which) :])
    held = [next(values) if w else next(cells) for w, r in zip(which, refs, strict=True) if r]
    assert_all_close([*got[:num_outs], *held], s.run(), f"discharge {which}: result")


def check_function(fun: Callable[..., Any], *args: Any) -> Sample:
    """All laws that need no compiler, for a function of pytrees; the sample is given back."""
    s = sample(fun, *args)
    check_laws(s)
    check_law_discharge(s)
    return s


def check_law_lower_discharged(s: Sample) -> None:
    """The compiled program computes what the oracle does on the program with its Refs."""
    pure = discharged(s)
    assert_all_close(run_compiled(pure.jaxpr, pure.args), s.run(), "lower: result", scale=10.0)


def ref_results(jaxpr: Jaxpr, results: Sequence[HostArray]) -> list[HostArray]:
    """The final contents among the results of a run."""
    return list(results[len(jaxpr.outvars) :])

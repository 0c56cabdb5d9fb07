"""The six in-place loops: every stage run by the oracle, printed as it should, and compiled without copies."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from typing import Any

import numpy as np
import pytest
from benchmarks.inplace import numpy_loops
from benchmarks.inplace.inputs import LOOPS, TRANSFORMS
from tests.integration.six_loops import GOLDEN, SMALL, printed, program, small_program

from fiveloop.core import Jaxpr, jit, tree_leaves, tree_map
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.inspect import Stages, stages
from fiveloop.core.passes import all_passes
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.oracle import run_jaxpr
from fiveloop.testing.core.samples import run_purely
from fiveloop.testing.loops import references as loops_references
from fiveloop.testing.state import references as state_references

REFERENCES = (state_references, loops_references)
"""What the oracle knows of Refs and loops."""

MANY = {"nested": 60, "rows": 200}
"""The size at which the gate is looked at: 2000, but here."""


def leaves(args: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(x) for x in tree_leaves(args)]


def jaxpr_of(found: Stages, name: str) -> Jaxpr:
    content = found[name]
    assert isinstance(content, Jaxpr), f"{name}: {content}"
    return content


def differentiable(values: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    return [x for x in values if x.dtype.kind == "f"]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("loop", LOOPS)
def test_the_result_is_that_of_the_loop_in_numpy(loop: str, transform: str) -> None:
    fun, args = small_program(loop, transform)
    want = numpy_loops.build(loop, transform, SMALL.get(loop, 5)).fun(*args)
    expected = [np.asarray(want[name]).astype(np.float32) for name in sorted(want)]
    scale = 100.0 if transform == "jvp_of_gradient" else 4.0  # the reference takes differences
    for run, given in ((fun, tree_map(lambda x: to_array(as_value(x)), args)), (jit(fun), args)):
        got = run(*given)
        assert sorted(got) == sorted(want)
        assert_all_close(leaves(got), expected, f"{loop}, {transform}", scale=scale)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("loop", LOOPS)
def test_the_oracle_runs_every_pass(loop: str, transform: str) -> None:
    fun, args = small_program(loop, transform)
    passes = [step.name for step in all_passes()]
    found = stages(fun, *args, upto=passes[-1])
    given = leaves(args)
    want = run_jaxpr(jaxpr_of(found, "trace"), given)
    assert_all_close(leaves(jit(fun)(*args)), want, "compiled")
    assert "discharge" in passes
    for name in passes:
        assert_all_close(run_purely(jaxpr_of(found, name), given), want, name)


@pytest.mark.parametrize("transform", ["primal", "gradient"])
@pytest.mark.parametrize("loop", LOOPS)
def test_the_oracle_runs_every_derivative(loop: str, transform: str) -> None:
    fun, args = small_program(loop, transform)
    found = stages(fun, *args, upto="transposed")
    given = leaves(args)
    draw = np.random.default_rng(0)
    dots = [draw.standard_normal(x.shape).astype(x.dtype) for x in differentiable(given)]
    want = run_jaxpr(jaxpr_of(found, "trace"), given)
    both = run_jaxpr(jaxpr_of(found, "jvp"), [*given, *dots])
    known = run_jaxpr(jaxpr_of(found, "known"), given)
    residuals = known[len(want) :]
    out_dots = run_jaxpr(jaxpr_of(found, "linear"), [*residuals, *dots])
    cts = [draw.standard_normal(x.shape).astype(x.dtype) for x in out_dots]
    in_cts = run_jaxpr(jaxpr_of(found, "transposed"), [*residuals, *cts])
    assert_all_close(both, [*want, *out_dots], "jvp", scale=4)
    assert_all_close(known[: len(want)], want, "known")
    forward = sum(np.vdot(ct, dot) for ct, dot in zip(cts, out_dots, strict=True))
    pairs = zip(nonzero_dots(found, dots), in_cts, strict=True)
    backward = sum(np.vdot(dot, ct) for dot, ct in pairs)
    np.testing.assert_allclose(forward, backward, rtol=1e-4, atol=1e-4)


def nonzero_dots(found: Stages, dots: Sequence[Any]) -> Sequence[Any]:
    """The tangents of those inputs that have a cotangent."""
    count = len(jaxpr_of(found, "transposed").outvars)
    assert count == len(dots), "an input that matters to no result"
    return dots


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("loop", LOOPS)
def test_no_step_copies_an_array(loop: str, transform: str) -> None:
    fun, args = program(loop, transform, MANY.get(loop, 2000))
    compiled = jit(fun).lower(*args).compile()
    assert "while" in compiled.as_text()
    assert compiled.copies == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_every_stage_prints_as_before(loop: str) -> None:
    want = (GOLDEN / f"{loop}.txt").read_text(encoding="utf-8")
    got = printed(loop)
    diff = "\n".join(
        unified_diff(want.splitlines(), got.splitlines(), "expected", "printed", lineterm="")
    )
    assert not diff, f"{diff}\nif this is meant: python -m tests.integration.six_loops"

"""Planning of scans that end early, and of branches: what no step changes is computed once, and writes are folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.extend import jaxprs_in
from fiveloop.core.passes import run_passes
from fiveloop.core.primitives.elementwise import exp
from fiveloop.core.primitives.special import sin, tanh
from fiveloop.loops import cond, explain, for_loop, planning, scan
from fiveloop.loops.options import DEFAULT
from fiveloop.state import debug_print, new_ref
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_function, check_law_planning, with_planning

N, STEPS = 12, 6
RNG = np.random.default_rng(0)
W = RNG.normal(size=(N, N)) / N
H: Any = RNG.normal(size=N)
XS: Any = RNG.normal(size=(STEPS, N))


def ended(h: Any) -> Any:
    return h[0] > 0.9


def normalised(w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        e = exp(w)
        return tanh((e / e.sum(1)[:, None]) @ h + x), h[1]

    h, ys, _ = scan(step, H, XS, until=ended)
    return (h * h).sum() + ys.sum()


def from_a_ref(w: Any) -> Any:
    ref, seen = new_ref(w), new_ref(np.zeros(STEPS))

    def step(carry: Any, x: Any) -> Any:
        h, k = carry
        seen[k] = h[0]
        return (tanh(sin(ref[...]) @ h + x), k + 1), None

    (h, _), _, steps = scan(step, (H, 0), XS, until=lambda carry: ended(carry[0]))
    return (h * h).sum() + seen[...].sum() + steps


def in_lanes(w: Any) -> Any:
    return vmap(normalised)(np.ones((2, 1, 1)) * w).sum()


MODELS = [normalised, from_a_ref, in_lanes]


def in_loops(jaxpr: Any, names: set[str], inside: bool = False) -> int:
    """How many equations of these names are in the bodies of loops, at any depth."""
    found = 0
    for eqn in jaxpr.eqns:
        found += inside and eqn.primitive.name in names
        for inner in jaxprs_in(eqn.params):
            found += in_loops(inner, names, inside or eqn.primitive.name == "for")
    return found


DEAR = {"exp", "sin"}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form", ["value", "gradient", "jvp of gradient"])
def test_no_step_computes_it_again(model: Callable[[Any], Any], form: str) -> None:
    forms: dict[str, Callable[[Any], Any]] = {
        "value": model,
        "gradient": grad(model),
        "jvp of gradient": lambda w: jvp(grad(model), (w,), (w,))[1],
    }
    assert in_loops(run_passes(make_jaxpr(forms[form])(W)), DEAR) == 0
    with planning(hoist=False):
        assert in_loops(run_passes(make_jaxpr(forms[form])(W)), DEAR) > 0


@pytest.mark.parametrize("model", [normalised, from_a_ref])
def test_the_pass_finds_it_too(model: Callable[[Any], Any]) -> None:
    with planning(hoist=False):
        s = sample(model, W)
    assert in_loops(s.jaxpr, DEAR) > 0
    assert in_loops(run_passes(with_planning(s.jaxpr, DEFAULT)), DEAR) == 0
    check_law_planning(s)


@pytest.mark.parametrize("model", MODELS)
def test_results_are_those_without_it(model: Callable[[Any], Any]) -> None:
    check_grads(model, (W,), order=1, rtol=1e-5)
    together = jit(lambda w: (model(w), grad(model)(w)))
    planned, eager = together(W), model(W)
    with planning(False):
        plain = together(W)
    for got, want in zip(planned, plain, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(np.asarray(eager), np.asarray(planned[0]), rtol=1e-12)


def test_the_loop_still_ends_early() -> None:
    # As many steps as this would take minutes; outside of `jit` the pass hoists, and keeps the end.
    def run(w: Any) -> Any:
        step = lambda h, _: (exp(w) @ h, None)
        return scan(step, H, length=2**31 - 1, until=lambda h: (h * h).sum() > 100.0)[2]

    assert int(jit(run)(W)) == int(run(W)) < 20
    lanes = jit(vmap(run))(np.stack([W, 2 * W]))
    assert [int(n) for n in np.asarray(lanes)] == [int(run(W)), int(run(2 * W))]


def test_explain_tells_of_it() -> None:
    (loop,) = explain(normalised, W).loops
    assert loop.decision("hoist", "f64[12,12] of `div`").done
    uses = {operand.name: operand.use for operand in loop.operands}
    assert uses == {
        "computed before": "value, the same in all steps",
        "carry": "carried as a value",
        "xs": "Ref that is only read, at indices",
        "ys": "Ref, at indices",
        "ended": "carried as a value",
    }


def test_effects_stay_where_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    def step(x: Any, _: Any) -> Any:
        debug_print("{}", sin(H)[0] * 0 + 7)
        return x + 1, None

    jit(lambda: scan(step, 0, length=9, until=lambda x: x > 3))()
    assert capfd.readouterr().out.count("7") == 4


def test_a_ref_that_a_step_writes_is_read_in_every_step() -> None:
    def run(w: Any) -> Any:
        ref = new_ref(w)

        def step(h: Any, _: Any) -> Any:
            new = tanh(sin(ref[...]) @ h)
            ref[0] = new
            return new, None

        return scan(step, H, length=4, until=ended)[0].sum()

    assert in_loops(run_passes(make_jaxpr(run)(W)), DEAR) == 1
    check_law_planning(check_function(run, W))


def test_writes_of_a_step_that_may_end_are_folded() -> None:
    ref = new_ref(np.zeros(STEPS))

    def step(k: Any, x: Any) -> Any:
        ref[k] = x[0]
        ref[k] = x[1]
        return k + 1, ref[k] * 2.0

    run = lambda: (scan(step, 0, XS, until=lambda k: k > 3)[1], ref[...])
    told = explain(run).loops[0].decisions
    overwritten, read = [d.reason for d in told if d.step == "fold" and d.subject == "ref"]
    assert overwritten == "a write is left out: the same place is written again before it is read"
    # `k` may be out of bounds, where a read is not what was written.
    assert read.startswith("a read after a write stays a read: whether it is of the place written")
    ys, held = jit(run)()
    with planning(fold=False):
        more, kept = jit(run)()
    np.testing.assert_array_equal(np.asarray(ys), np.asarray(more))
    np.testing.assert_array_equal(np.asarray(held), np.asarray(kept))
    np.testing.assert_array_equal(np.asarray(held), [*XS[:4, 1], 0, 0])


def branching(x: Any) -> Any:
    def body(i: Any, r: Any) -> None:
        def update() -> None:
            r[i] = sin(r[i - 1])
            r[i] += 0.5
            r[i] = r[i] * 0.5

        cond(i % 3 == 0, update, lambda: None)

    return for_loop(STEPS, body, x)


def test_writes_of_a_branch_are_folded() -> None:
    def writes(jaxpr: Any) -> int:
        return in_loops(jaxpr, {"swap", "addupdate"})

    assert writes(make_jaxpr(branching)(H)) == 1
    with planning(fold=False):
        s = sample(branching, H)
    assert writes(s.jaxpr) == 3
    check_law_planning(s)
    check_grads(branching, (H,), order=2, rtol=1e-5)


def test_what_a_branch_computes_stays_there() -> None:
    def run(w: Any) -> Any:
        body = lambda i, h: h.__setitem__(
            ..., cond(h[0] > 9, lambda: exp(w) @ h[...], lambda: h[...])
        )
        return for_loop(STEPS, body, H)

    assert in_loops(run_passes(make_jaxpr(run)(W)), DEAR) == 1

"""What no step changes is computed once, and so is its derivative; what has effects or costs more to keep stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import closed_call, custom_vjp, debug_nans, grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.passes import run_passes
from fiveloop.core.primitives.elementwise import exp
from fiveloop.core.primitives.special import sin, tanh
from fiveloop.loops import explain, for_loop, fori_loop, planning, scan
from fiveloop.state import check, checkify, debug_print, new_ref
from fiveloop.testing.core.compare import assert_close
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_function, check_law_planning

N, STEPS = 12, 5
RNG = np.random.default_rng(0)
W = RNG.normal(size=(N, N)) / N
H: Any = RNG.normal(size=N)
XS: Any = RNG.normal(size=(STEPS, N))


def normalised(w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        e = exp(w)
        return tanh((e / e.sum(1)[:, None]) @ h + x), None

    return (scan(step, H, XS)[0] ** 2).sum()


def from_a_ref(w: Any) -> Any:
    ref = new_ref(w)

    def body(i: Any, h: Any) -> None:
        h[...] = tanh(sin(ref[...]) @ h[...] + i)

    return (for_loop(STEPS, body, H) ** 2).sum()


def in_two_loops(w: Any) -> Any:
    def outer(i: Any, h: Any) -> Any:
        return fori_loop(0, 3, lambda j, h: tanh(exp(w) @ h + i + j), h)

    return (fori_loop(0, STEPS, outer, H) ** 2).sum()


def in_lanes(w: Any) -> Any:
    return vmap(normalised)(np.ones((2, 1, 1)) * w).sum()


MODELS = [normalised, from_a_ref, in_two_loops, in_lanes]


def in_loops(jaxpr: Any, name: str) -> int:
    """How many equations of that name are in the bodies of loops."""
    found = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "for":
            found += str(eqn.params.body).count(f" {name} ")
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form", ["value", "gradient", "jvp of gradient"])
def test_no_loop_computes_it_again(model: Callable[[Any], Any], form: str) -> None:
    forms: dict[str, Callable[[Any], Any]] = {
        "value": model,
        "gradient": grad(model),
        "jvp of gradient": lambda w: jvp(grad(model), (w,), (w,))[1],
    }
    jaxpr = run_passes(make_jaxpr(forms[form])(W))
    assert in_loops(jaxpr, "exp") == in_loops(jaxpr, "sin") == 0
    assert " exp " in str(jaxpr) or " sin " in str(jaxpr)


@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_right(model: Callable[[Any], Any]) -> None:
    check_grads(model, (W,), order=1, rtol=1e-5)
    want = np.asarray(jit(grad(model))(W))
    with planning(hoist=False):
        np.testing.assert_allclose(np.asarray(jit(grad(model))(W)), want, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(np.asarray(grad(model)(W)), want, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("model", MODELS)
def test_the_law_of_planning(model: Callable[[Any], Any]) -> None:
    with planning(hoist=False):
        s = sample(model, W)
    check_law_planning(s)
    assert in_loops(s.jaxpr, "exp") + in_loops(s.jaxpr, "sin") > 0


def test_outside_of_traces_the_program_of_the_loop_does_it_itself() -> None:
    bound = jit(lambda w: for_loop(STEPS, lambda i, h: swap(h, w), H))

    def swap(h: Any, w: Any) -> None:
        h[...] = tanh(exp(w) @ h[...])

    eager = for_loop(STEPS, lambda i, h: swap(h, W), H)
    np.testing.assert_allclose(np.asarray(eager), np.asarray(bound(W)), rtol=1e-12)


def test_a_state_that_no_step_writes_is_read_before_the_loop() -> None:
    def body(i: Any, refs: Any) -> None:
        w, h = refs
        h[...] = tanh(exp(w[...]) @ h[...]) + w[0, i]

    def run(w: Any) -> Any:
        return for_loop(STEPS, body, [w, H])[1].sum()

    assert in_loops(run_passes(make_jaxpr(run)(W)), "exp") == 0
    s = check_function(run, W)
    check_law_planning(s)


STAY: dict[str, Callable[[Any], Any]] = {
    "it changes": lambda w: fori_loop(0, STEPS, lambda i, h: exp(w * i) @ h, H),
    "one step": lambda w: fori_loop(0, 1, lambda i, h: exp(w) @ h, H),
    "cheap": lambda w: fori_loop(0, STEPS, lambda i, h: h * exp(w[0, 0] * 1.0 + i) + w[0] * 2, H),
}


@pytest.mark.parametrize("name", STAY)
def test_the_rest_stays(name: str) -> None:
    jaxpr = run_passes(make_jaxpr(STAY[name])(W))
    assert in_loops(jaxpr, "exp") == 1
    assert not any(d.done for d in explain(STAY[name], W).loops[0].decisions if d.step == "hoist")


def test_a_ref_that_is_written_is_read_in_every_step() -> None:
    def run(w: Any) -> Any:
        ref = new_ref(w)

        def body(i: Any, h: Any) -> None:
            h[...] = tanh(sin(ref[...]) @ h[...])
            ref[i] = h[...]

        return for_loop(STEPS, body, H)

    assert in_loops(run_passes(make_jaxpr(run)(W)), "sin") == 1
    check_law_planning(check_function(lambda w: run(w).sum(), W[:, :]))


def test_what_takes_much_more_room_than_what_it_is_made_from_stays() -> None:
    wide: Any = np.ones(1200, np.float32)

    def run(a: Any) -> Any:
        return fori_loop(0, 3, lambda i, s: s + (exp(a[:, None] - a[None, :]) * i).sum(), 0.0)

    (decision,) = [d for d in explain(run, wide).loops[0].decisions if d.step == "hoist"]
    assert not decision.done
    assert decision.reason.endswith("it would take more memory than its operands")


def test_effects_stay_where_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    def body(i: Any, h: Any) -> Any:
        debug_print("{}", sin(H)[0] * 0 + 7)
        return h + 1

    jit(lambda: fori_loop(0, 3, body, 0))()
    assert capfd.readouterr().out.count("7") == 3


@pytest.mark.parametrize("call", [lambda f: f, jit, closed_call])
@pytest.mark.parametrize("until", [None, lambda c: c > 100])
def test_bwd_runs_in_each_step(call: Any, until: Any) -> None:
    """It need not be linear: the sum of what is clipped is not the sum, clipped."""
    f: Any = custom_vjp(lambda x: exp(sin(sin(x))))
    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct.clip(-1.0, 1.0),))
    factors = np.array([2.0, 0.25, -2.5])

    def total(x: Any) -> Any:
        step = lambda c, a: (c + a * call(f)(x), None)
        return scan(step, 0.0 * x, factors, until=until)[0]

    assert_close(jit(grad(total))(0.5), np.float32(0.25))


def test_a_check_is_made_in_the_loop() -> None:
    def run(w: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            check(sin(w[0, 0]) * 0 + i < 2, "step {i}", i=i)
            return h + 1.0

        return fori_loop(0, 4, body, 0.0)

    error, out = checkify(run)(W)
    assert "step 2" in str(error)
    assert float(out) == 4.0


def test_a_result_of_several_that_are_computed_at_once() -> None:
    pair = jit(lambda w: (exp(w), sin(w), w + 1.0))

    def run(w: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            a, b, c = pair(w)
            return tanh(a @ h + b[0] * i + c[0])

        return fori_loop(0, STEPS, body, H).sum()

    assert in_loops(run_passes(make_jaxpr(run)(W)), "exp") == 0
    check_grads(run, (W,), order=1, rtol=1e-5)


def test_nans_are_found_where_they_are_made() -> None:
    start: Any = 0.0
    from_zero = lambda x: fori_loop(0, 3, lambda i, s: s + sin(x / (x * 0)), start)
    with pytest.raises(Exception, match="made a nan"), debug_nans():
        jit(from_zero)(0.0)


def test_what_is_told() -> None:
    (loop,) = explain(normalised, W).loops
    found = [str(d).rpartition(", test")[0] for d in loop.decisions if d.step == "hoist"]
    assert found == [
        f"+ hoist: f64[{N},{N}] of `div`: it is computed once, with the 4 operations before it"
    ]
    assert loop.operands[0].name == "computed before"

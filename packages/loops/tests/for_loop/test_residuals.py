"""What a loop keeps of each step under the minimum cut, against saving all that is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.state as st
from fiveloop.core import Jaxpr, MinimumCut, closed_call, grad, jit, make_jaxpr, value_and_grad
from fiveloop.core.extend import (
    DEFAULT_PLAN,
    SAVE_EVERYTHING,
    SavingPlan,
    as_value,
    eval_jaxpr,
    linearize_jaxpr,
)
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.broadcast import zeros
from fiveloop.core.primitives.shape import concatenate
from fiveloop.loops import cond, for_loop, scan
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.gradcheck import check_grads

STEPS, ROWS, WIDTH = 5, 3, 8
DRAW = np.random.default_rng(0)
"""Steps, and the shape of what is carried."""


def drawn(*shape: int) -> Any:
    return (DRAW.normal(size=shape) * 0.3).astype(np.float32)


def kept(fun: Callable[..., Any], *args: Any, plan: SavingPlan = DEFAULT_PLAN) -> list[str]:
    """The types of what loops keep of each step, sorted."""
    jaxpr = make_jaxpr(fun)(*args)
    known, _, _, num_res = linearize_jaxpr(jaxpr, (True,) * len(jaxpr.invars), plan)
    results = {v for e in known.eqns if e.primitive.name == "for" for v in e.outvars}
    found = known.outvars[len(known.outvars) - num_res :]
    types = [str(v.aval) for v in found if v in results]
    return sorted(t for t in types if t.startswith(f"f32[{STEPS},"))


def plainly_kept(fun: Callable[..., Any], *args: Any) -> list[str]:
    return kept(fun, *args, plan=SAVE_EVERYTHING)


def size(stack: str) -> int:
    return int(np.prod([int(n) for n in stack[4:-1].split(",")]))


def chain(x: Any, xs: Any) -> Any:
    def step(h: Any, y: Any) -> tuple[Any, None]:
        return ew.exp(sp.sin(h) * y), None

    return scan(step, x, xs)[0].sum()


CHAIN = drawn(WIDTH), drawn(STEPS, WIDTH)
STACK = f"f32[{STEPS},{WIDTH}]"


def test_a_chain_of_functions_keeps_less() -> None:
    """What is carried and the last function's value are one stack; a cosine is computed later, from what is carried.

    The sine would be computed twice, and that is half of what a step does: it is kept unless a chain may cost that.
    """
    assert plainly_kept(chain, *CHAIN) == [STACK] * 3
    assert kept(chain, *CHAIN) == [STACK] * 2
    assert kept(chain, *CHAIN, plan=SavingPlan(MinimumCut(share=4.0))) == [STACK]
    nothing_again = SavingPlan(MinimumCut(share=0.0))
    assert kept(chain, *CHAIN, plan=nothing_again) == [STACK] * 3


def alphas(scores: Any) -> Any:
    """A recurrence in log space: each state is reached from itself and from its two neighbours."""

    def step(alpha: Any, score: Any) -> tuple[Any, None]:
        one, two = (concatenate([alpha[k:], alpha[:k]], 0) for k in (1, 2))
        return sp.logaddexp(sp.logaddexp(alpha, one), two) + score, None

    return scan(step, scores[0], scores)[0].sum()


def written_out(scores: Any) -> Any:
    """Sums of exponentials, and their logarithms."""

    def step(alpha: Any, score: Any) -> tuple[Any, None]:
        one = concatenate([alpha[1:], alpha[:1]], 0)
        return ew.log(ew.exp(alpha) + ew.exp(one)) + score, None

    return scan(step, scores[0], scores)[0].sum()


@pytest.mark.parametrize(
    ("fun", "functions"), [(alphas, {"logaddexp": 2}), (written_out, {"exp": 2, "log": 1})]
)
def test_functions_in_a_chain_are_computed_once(
    fun: Callable[..., Any], functions: dict[str, int]
) -> None:
    """Beside what is carried, one value of a step is kept: the first sum, or the sum of exponentials."""
    jaxpr = make_jaxpr(grad(fun))(drawn(STEPS, WIDTH))
    bodies = [e.params.body for e in jaxpr.eqns if e.primitive.name == "for"]
    found = [e.primitive.name for body in bodies for e in body.eqns]
    assert {name: found.count(name) for name in functions} == functions
    assert STACK in kept(fun, drawn(STEPS, WIDTH))


@pytest.mark.parametrize(("shape", "forward"), [((), ["cos", "sin"]), ((WIDTH,), ["sin"])])
def test_a_cosine_of_few_elements_is_computed_beside_its_sine(
    shape: tuple[int, ...], forward: list[str]
) -> None:
    """So the two share what reduces the angle; of many elements it is computed later, from what is at hand."""

    def fun(angles: Any) -> Any:
        return scan(lambda s, a: (s + sp.sin(a * 2.0), None), zeros(shape), angles)[0].sum()

    loop = next(
        e
        for e in make_jaxpr(value_and_grad(fun))(drawn(STEPS, *shape)).eqns
        if e.primitive.name == "for"
    )
    assert sorted({e.primitive.name for e in loop.params.body.eqns} & {"cos", "sin"}) == forward


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + ew.exp(-x))


def lstm_cell(h: Any, c: Any, x: Any, w: Any, u: Any) -> tuple[Any, Any]:
    z = x @ w + h @ u
    i, f, g, o = (z[:, k * WIDTH : (k + 1) * WIDTH] for k in range(4))
    c = sigmoid(f) * c + sigmoid(i) * sp.tanh(g)
    return sigmoid(o) * sp.tanh(c), c


def lstm(wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(w: Any, u: Any, xs: Any) -> Any:
        cell = wrap(lstm_cell)
        start = zeros((ROWS, WIDTH)), zeros((ROWS, WIDTH))
        step = lambda hc, x: (cell(*hc, x, w, u), None)
        (h, c), _ = scan(step, start, xs)
        return (h * c).sum()

    return run


LSTM = drawn(WIDTH, 4 * WIDTH), drawn(WIDTH, 4 * WIDTH), drawn(STEPS, ROWS, WIDTH)


@pytest.mark.parametrize(
    ("wrap", "number"),
    [(lambda f: f, 5), (jit, 6), (closed_call, 6)],
    ids=["plain", "jit", "call"],
)
def test_an_lstm_keeps_its_cell_and_four_gates(wrap: Callable[[Any], Any], number: int) -> None:
    """Its state is made of a gate and the cell of the step before; where a call makes it, it is kept, too."""
    plain, cut = plainly_kept(lstm(wrap), *LSTM), kept(lstm(wrap), *LSTM)
    one = STEPS * ROWS * WIDTH
    assert sum(map(size, cut)) == number * one
    assert sum(map(size, plain)) >= 14 * one


@pytest.mark.parametrize("reverse", [False, True])
def test_a_carry_made_of_what_the_step_before_keeps(reverse: bool) -> None:
    """The first step reads what is carried before the loop."""
    w, u, xs = LSTM

    def run(h: Any, c: Any, xs: Any) -> Any:
        def step(hc: tuple[Any, Any], x: Any) -> tuple[Any, None]:
            return lstm_cell(*hc, x, w.astype(x.dtype), u.astype(x.dtype)), None

        h, c = scan(step, (h, c), xs, reverse=reverse)[0]
        return (h * c).sum()

    args = drawn(ROWS, WIDTH), drawn(ROWS, WIDTH), xs
    assert len(kept(run, *args)) == 5
    exact = tuple(np.asarray(x, np.float64) for x in args)
    check_grads(jit(lambda *xs: run(*map(as_value, xs))), exact, order=2, rtol=1e-4)


def weighted(w: Any, xs: Any) -> Any:
    """Steps that use what is made of a constant alone."""

    def step(h: Any, x: Any) -> tuple[Any, None]:
        scale = ew.exp(sp.sin(w))
        return sp.tanh(h * scale + x), None

    return scan(step, zeros(WIDTH), xs)[0].sum()


def test_what_no_step_changes_is_not_stacked() -> None:
    assert kept(weighted, *CHAIN) == [STACK]


def branches(x: Any, xs: Any) -> Any:
    def step(h: Any, y: Any) -> tuple[Any, None]:
        out = cond(y.sum() > 0.0, lambda: ew.exp(h) * sp.sin(h), lambda: sp.tanh(h) * sp.cos(h))
        return out, None

    return scan(step, x, xs)[0].sum()


def test_branches_keep_less() -> None:
    assert kept(branches, *CHAIN).count(STACK) < plainly_kept(branches, *CHAIN).count(STACK)


def nested(x: Any, xs: Any) -> Any:
    def step(h: Any, y: Any) -> tuple[Any, None]:
        return scan(lambda g, _: (sp.sin(ew.exp(g) * y), None), h, None, length=2)[0], None

    return scan(step, x, xs)[0].sum()


def test_nested_loops_keep_less() -> None:
    assert kept(nested, *CHAIN) == [f"f32[{STEPS},2,{WIDTH}]"]
    assert len(plainly_kept(nested, *CHAIN)) == 2


def one_of_many(x: Any, table: Any) -> Any:
    """A loop that touches one element a step of what the loop around it makes: to keep all of that costs more."""

    def step(total: Any, scale: Any) -> tuple[Any, None]:
        whole = ew.exp(table * scale + total)

        def body(i: Any, ref: Any) -> None:
            ref[...] += sp.sin(whole[i])

        return for_loop(1, body, total), None

    return scan(step, zeros(()), x)[0]


def test_a_loop_within_does_not_ask_for_more_than_it_saves() -> None:
    args = drawn(STEPS), drawn(100)
    cut, plain = kept(one_of_many, *args), plainly_kept(one_of_many, *args)
    assert sum(map(size, cut)) <= sum(map(size, plain))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (chain, CHAIN),
    "lstm": (lstm(lambda f: f), LSTM),
    "called": (lstm(closed_call), LSTM),
    "weighted": (weighted, CHAIN),
    "branches": (branches, CHAIN),
    "nested": (nested, CHAIN),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_saving_plainly(name: str) -> None:
    fun, args = PROGRAMS[name]
    jaxpr: Jaxpr = make_jaxpr(fun)(*args)
    nonzero = (True,) * len(args)
    results = []
    for plan in (SAVE_EVERYTHING, DEFAULT_PLAN, SavingPlan(MinimumCut(1e4, share=1e4))):
        known, linear, _, num_res = linearize_jaxpr(jaxpr, nonzero, plan)
        outs = run(known, args)
        results.append(run(linear, [*outs[len(outs) - num_res :], *args]))
    for got in results[1:]:
        assert_all_close(got, results[0], name)


def run(jaxpr: Jaxpr, args: Any) -> list[Any]:
    """The results of a jaxpr, compiled."""
    call = jit(lambda *xs: list(eval_jaxpr(jaxpr, [as_value(x) for x in xs])))
    return [np.asarray(x) for x in call(*args)]


def weights_in_a_ref(w: Any, h: Any, *, change: bool) -> Any:
    """A recurrence whose weights are read from a Ref in every step."""
    ref = st.new_ref(w)

    def body(i: Any, state: Any) -> None:
        state[...] = sp.tanh(ref[...] @ state[...])

    out = for_loop(7, body, h)
    if change:
        ref[...] = 0.0
    return (out**2).sum()


@pytest.mark.parametrize("change", [False, True])
def test_weights_read_from_a_ref_are_kept_once(change: bool) -> None:
    w, h = np.linspace(-1, 1, 16).reshape(4, 4), np.ones(4)
    printed = str(make_jaxpr(grad(lambda w: weights_in_a_ref(w, h, change=change)))(w))
    assert "7,4,4]" not in printed
    check_grads(lambda w: weights_in_a_ref(w, h, change=change), (w,), order=2, rtol=1e-5)


def test_an_element_read_from_a_large_ref_is_kept_alone() -> None:
    def total(x: Any, s: Any) -> Any:
        ref = st.new_ref(x)

        def body(i: Any, state: Any) -> None:
            state[...] = sp.tanh(ref[i] * state[...])

        out = for_loop(3, body, s)
        return out + ref[0]

    x = np.linspace(0.1, 1, 1000)
    check_grads(total, (x, np.float64(0.5)), order=1, rtol=1e-5)
    one = jit(grad(total, 1)).lower(x, np.float64(0.5)).compile().memory_analysis()
    assert one.temp < 1000 * 8


CHAINS: dict[str, Callable[[Any], Any]] = {
    "exponential": lambda c: ew.exp(-ew.exp(-ew.exp(-c))),
    "log": lambda c: ew.log(2 + ew.log(2 + ew.log(2 + c * c))),
    "tanh": lambda c: sp.tanh(sp.tanh(sp.tanh(c))),
    "sqrt": lambda c: ew.exp(-ew.sqrt(1 + ew.sqrt(2 + ew.sqrt(1 + c * c)))),
    "sine": lambda c: sp.sin(sp.sin(sp.sin(c))),
}
"""Chains of three functions, under the name of the operation that is lowered for each."""


def chain_in_a_branch(f: Callable[[Any], Any], c: Any) -> Any:
    return cond(c[0] > 0, f, lambda c: 0.5 * c, c)


def chain_in_a_loop(f: Callable[[Any], Any], c: Any) -> Any:
    return scan(lambda d, _: (f(d), None), c, None, length=7)[0]


@pytest.mark.parametrize("within", [lambda f, c: f(c), chain_in_a_branch, chain_in_a_loop])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_functions_is_computed_once(
    name: str, within: Callable[[Callable[[Any], Any], Any], Any]
) -> None:
    def total(x: Any, xs: Any) -> Any:
        return scan(lambda c, y: (within(CHAINS[name], c * y), None), x, xs)[0].sum()

    x, xs = drawn(64), drawn(50, 64)
    text = jit(grad(total)).lower(x, xs).as_text()
    assert text.count(f"stablehlo.{name} ") == 3

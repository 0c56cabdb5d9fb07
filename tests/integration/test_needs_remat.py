"""What users of the peer's checkpoints ask for and do not have, by the number of the issue or of the fact.

Above each test stands what the peer (version 0.12, on a CPU) does. `test_offloaded_loops.py` has offloaded residuals of
loops (#23869), `test_remat_budgets.py` budgets of whole models.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    compilation_counts,
    custom_jvp,
    custom_vjp,
    grad,
    jit,
    jvp,
    make_jaxpr,
    vjp,
    vmap,
)
from fiveloop.core.extend import bind
from fiveloop.loops import cond, fori_loop, scan, switch, while_loop
from fiveloop.remat import (
    checkpoint,
    checkpoint_name,
    explain_residuals,
    policies,
    saved_residuals,
)
from fiveloop.remat.budget.amount import amount
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p
from fiveloop.state import debug_callback, new_ref

X = np.linspace(0.2, 0.9, 4, dtype=np.float32)
WS = np.linspace(0.5, 1.5, 12, dtype=np.float32).reshape(3, 4)
NAMED = policies.save_only_these_names("kept")


def assert_same(got: Any, want: Any) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


def origins(fun: Callable[..., Any], *args: Any) -> list[str]:
    """What makes the residuals that are no arguments."""
    found = [r.origin for r in saved_residuals(fun, *args)]
    return sorted(o for o in found if "argument" not in o and "constant" not in o)


def step(x: Any, w: Any) -> Any:
    return fnp.sin(checkpoint_name(fnp.tanh(x * w), "kept")) * x


# --- F5: a checkpointed function that writes a Ref, an argument or closed over: AttributeError 'ref' ---------------


def writes_its_argument(x: Any, ref: Any) -> Any:
    y = fnp.sin(x)
    ref[0] = y
    return fnp.sin(ref[0]) * ref[1]


@pytest.mark.parametrize(
    "options", [{}, {"policy": policies.everything_saveable}, {"budget": 0.5}], ids=str
)
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_f5_a_checkpoint_writes_refs(wrap: Callable[..., Any], options: dict[str, Any]) -> None:
    def given(run: Callable[..., Any], x: Any) -> Any:
        ref = new_ref(fnp.stack([x, 2.0 * x]))
        return run(x, ref).sum() + (ref[...] ** 2).sum()

    def closed_over(wrapped: Callable[..., Any], x: Any) -> Any:
        ref = new_ref(fnp.stack([x, 2.0 * x]))
        return wrapped(lambda x: writes_its_argument(x, ref))(x).sum() + (ref[...] ** 2).sum()

    saved: Callable[..., Any] = checkpoint(**options)
    for plain, checkpointed in [
        (partial(given, writes_its_argument), partial(given, saved(writes_its_argument))),
        (partial(closed_over, lambda f: f), partial(closed_over, saved)),
    ]:
        assert_same(wrap(grad(checkpointed))(X), grad(plain)(X))
        second: Any = lambda f: grad(lambda x: (grad(f)(x) ** 2).sum())
        assert_same(wrap(second(checkpointed))(X), second(plain)(X))
        lanes = np.stack([X, X + 0.3])
        assert_same(wrap(vmap(grad(checkpointed)))(lanes), vmap(grad(plain))(lanes))


def test_f5_a_ref_is_replayed_on_a_private_copy() -> None:
    total = new_ref(np.float32(0.0))

    @checkpoint
    def counted(x: Any) -> Any:
        total[...] += 1.0
        scratch = new_ref(x)
        scratch[...] = fnp.sin(scratch[...])
        return fnp.sin(scratch[...]).sum()

    assert_same(grad(counted)(X), np.cos(np.sin(X)) * np.cos(X))
    assert total[...].item() == 1.0


# Calls back twice, once for each half (PR#13759).
def test_f5_what_happens_outside_happens_once() -> None:
    seen: list[float] = []

    def noted(x: Any) -> Any:
        y = fnp.sin(x).sum()
        debug_callback(lambda y: seen.append(float(y)), y)
        return fnp.sin(y)

    jit(grad(checkpoint(noted)))(X).block_until_ready()
    assert seen == [pytest.approx(float(np.sin(X).sum()))]


# --- F6: with remat3, a policy that is a function is ignored --------------------------------------------------------


def test_f6_a_function_is_a_policy_wherever_it_is_asked() -> None:
    sines = lambda eqn: eqn.primitive.name == "sin"
    by_name = lambda prim, *avals, **params: prim.name == "sin"
    for policy in (sines, by_name):
        straight = checkpoint(lambda x: fnp.exp(fnp.sin(x) ** 2), policy=policy)
        assert origins(straight, X) == ["result of sin"]
        looped = checkpoint(
            lambda x: scan(lambda c, w: (fnp.exp(fnp.sin(c * w) ** 2), None), x, WS)[0],
            policy=policy,
        )
        assert "result of sin" in origins(looped, X)


# --- F7: `save_anything_except_these_names` saves everything, `save_from_both_policies` raises on offload -----------


def test_f7_all_but_a_name_and_both_of_two_policies() -> None:
    fun = lambda x: fnp.exp(checkpoint_name(fnp.exp(x), "kept"))
    but = policies.save_anything_except_these_names("kept")
    assert origins(checkpoint(fun, policy=but), X) == ["result of exp"]
    offloads = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    both = policies.save_from_both_policies(offloads, policies.save_only_these_names("kept"))
    product = lambda x: fnp.sin(checkpoint_name(fnp.sin(WS @ x), "kept"))
    assert origins(checkpoint(product, policy=both), X) == ["named 'kept'", "result of dot_general"]


# --- A policy reaches into what a checkpoint calls (axlearn PR#1171, #27748, #20877) --------------------------------


@custom_jvp
def by_jvp(x: Any) -> Any:
    return step(x, 2.0)


by_jvp.defjvp(lambda primals, dots: jvp(lambda x: step(x, 2.0), primals, dots))


@custom_vjp
def by_vjp(x: Any) -> Any:
    return step(x, 2.0)


by_vjp.defvjp(lambda x: vjp(lambda x: step(x, 2.0), x), lambda pullback, ct: pullback(ct))


def while_form(x: Any, **bound: Any) -> Any:
    body = lambda val: (val[0] + 1, step(val[1], 0.9))
    return while_loop(lambda val: val[0] < 2 + (val[1][0] > 9.0), body, (0, x), **bound)[1]


FORMS: dict[str, Callable[[Any], Any]] = {
    "jit": jit(lambda x: step(x, 2.0)),
    "jit in jit": jit(lambda x: jit(step)(x, 2.0) + 1.0),
    "scan": lambda x: scan(lambda c, w: (step(c, w), None), x, WS)[0],
    "fori_loop": lambda x: fori_loop(0, 3, lambda i, c: step(c, 0.9), x),
    "while": partial(while_form, max_steps=5),
    "cond": lambda x: cond(x[0] > 0.5, lambda x: step(x, 2.0), lambda x: x * x, x),
    "switch": lambda x: switch(
        1, [lambda x: x * x, lambda x: step(x, 2.0), lambda x: x], jit(lambda x: x)(x)
    ),
    "custom_jvp": by_jvp,
    "custom_vjp": by_vjp,
    "a checkpoint": checkpoint(lambda x: step(x, 2.0), policy=policies.everything_saveable),
}


@pytest.mark.parametrize("form", FORMS)
def test_1171_a_policy_reaches_into(form: str) -> None:
    # The last operation makes the result itself of no use to the backward pass.
    fun = lambda x: FORMS[form](x * 2.0) * 3.0
    kept = origins(checkpoint(fun, policy=NAMED), X)
    assert "named 'kept'" in kept
    assert not {"result of tanh", "result of sin", "result of cos"} & set(kept)


def every_derivative(form: str, fun: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient, gradients of lanes, and a second derivative where there is one."""

    def run(x: Any) -> Any:
        lanes = vmap(grad(fun))(fnp.stack([x, x[::-1]]))
        if form == "custom_vjp":
            return grad(fun)(x), lanes
        return grad(fun)(x), lanes, jvp(grad(fun), (x,), (fnp.ones_like(x),))[1]

    return jit(run)


@pytest.mark.parametrize("form", FORMS)
def test_1171_derivatives_of_every_order_and_on_lanes(form: str) -> None:
    plain = lambda x: (FORMS[form](x * 2.0) ** 2).sum()
    wanted = every_derivative(form, plain)(X)
    for policy in (NAMED, policies.everything_saveable):
        for got, want in zip(
            every_derivative(form, checkpoint(plain, policy=policy))(X), wanted, strict=True
        ):
            assert_same(got, want)


@pytest.mark.parametrize(("kind", "form"), [("closed_call", "jit"), ("cond", "cond")])
def test_1171_a_policy_judges_the_results_of_calls_and_branches(kind: str, form: str) -> None:
    fun = lambda x: fnp.exp(fnp.sin(FORMS[form](x * 2.0)))
    results = lambda eqn: eqn.primitive.name == kind
    assert origins(checkpoint(fun), X) == []
    assert origins(checkpoint(fun, policy=results), X) == ["result of mul"]


@pytest.mark.parametrize("form", ["scan", "fori_loop", "while"])
def test_1171_a_loop_whose_values_are_saved_is_not_run_again_for_its_result(form: str) -> None:
    fun = lambda x: fnp.exp(fnp.sin(FORMS[form](x * 2.0)))
    kept = origins(checkpoint(fun, policy=NAMED), X)
    assert kept.count("named 'kept'") == 1
    assert "result of mul" in kept


# The outer policy of two wins under remat3, the inner one before: here what both save is saved.
def test_an_inner_policy_saves_what_the_outer_one_allows() -> None:
    def saved(inner: Any, outer: Any) -> list[str]:
        def held(x: Any) -> Any:
            return checkpoint(step, policy=inner)(x, 2.0) * 1.5

        return origins(checkpoint(held, policy=outer), X)

    everything, nothing = policies.everything_saveable, policies.nothing_saveable
    assert saved(everything, nothing) == saved(nothing, everything) == []
    assert saved(everything, NAMED) == saved(NAMED, everything) == ["named 'kept'"]


# --- Residuals that nothing uses, and work that nothing needs (d1f0c60b7b, fb9b5ec1e4, PR#39133) --------------------


def counts(fun: Callable[..., Any], *args: Any) -> dict[str, int]:
    text = str(make_jaxpr(fun)(*args))
    return {name: text.count(f"= {name} ") for name in ("sin", "exp", "tanh")}


def test_8347_results_that_nothing_uses_are_not_computed_again() -> None:
    @checkpoint
    def two(x: Any) -> Any:
        return fnp.sin(fnp.sin(x)), fnp.exp(fnp.exp(x))

    used = counts(grad(lambda x: two(x)[0].sum()), X)
    assert used["exp"] == 0

    @checkpoint
    def looped(x: Any) -> Any:
        body = lambda c, w: ((fnp.sin(fnp.sin(c[0] * w)), fnp.exp(fnp.exp(c[1] * w))), None)
        return scan(body, (x, x), WS)[0]

    assert counts(grad(lambda x: looped(x)[0].sum()), X)["exp"] == 0


def test_8347_no_dead_residual_of_a_loop_is_stacked() -> None:
    @partial(checkpoint, policy=policies.everything_saveable)
    def looped(x: Any) -> Any:
        body = lambda c, w: ((fnp.sin(c[0] * w), fnp.exp(c[1] * w)), fnp.tanh(c[1]))
        return scan(body, (x, x), WS)

    kept = saved_residuals(lambda x: looped(x)[0][0], X)
    assert not [r for r in kept if "exp" in r.origin or "tanh" in r.origin]


def test_8347_a_linear_part_is_not_computed_again() -> None:
    @checkpoint
    def affine_end(x: Any) -> Any:
        return fnp.sin(x).sum() * 3.0 + fnp.exp(x).sum() * 0.0

    text = str(make_jaxpr(grad(affine_end))(X))
    assert text.count("= sin ") == 0 or text.count("= cos ") == 1


# --- A checkpoint around a while loop, which the peer has no rule for (PR#9148) -------------------------------------


@pytest.mark.parametrize("bound", [{}, {"checkpoints": 2}, {"max_steps": 7}], ids=str)
def test_9148_a_while_in_a_checkpoint(bound: dict[str, Any]) -> None:
    fun = lambda x: (while_form(x, **bound) ** 2).sum()
    plain = lambda x: (step(step(x, 0.9), 0.9) ** 2).sum()
    for policy in (NAMED, policies.everything_saveable):
        assert_same(jit(grad(checkpoint(fun, policy=policy)))(X), grad(plain)(X))
        second: Any = lambda f: grad(lambda x: (grad(f)(x) ** 2).sum())
        assert_same(jit(second(checkpoint(fun, policy=policy)))(X), second(plain)(X))


# --- Names that match nothing (maxtext PR#4990), and `policy=None` ---------------------------------------------------


def test_4990_a_name_that_labels_nothing_is_reported_with_its_neighbour(caplog: Any) -> None:
    def labelled(x: Any) -> Any:
        return scan(lambda c, w: (fnp.sin(checkpoint_name(c * w, "attention")), None), x, WS)[0]

    with caplog.at_level(logging.WARNING, "fiveloop.remat"):
        wrong = policies.save_only_these_names("atention") | policies.nothing_saveable
        grad(lambda x: checkpoint(labelled, policy=wrong)(x).sum())(X)
        (record,) = caplog.records
        assert "did you mean 'attention'?" in record.message
        assert "test_needs_remat.py" in record.message


# A table of options mapped one of them to None, and everything was saved (maxtext PR#3924).
def test_3924_no_policy_saves_the_arguments_alone() -> None:
    def layers(x: Any) -> Any:
        return scan(lambda c, w: (step(c, w), None), x, WS)[0]

    assert origins(checkpoint(step, policy=None), X, 2.0) == []
    assert origins(checkpoint(layers), X) == ["carry, result of mul"]


# The derivative of `y = exp(x)` uses `y` itself, of which only an alias has a name: it is computed again (#12792).
def test_12792_a_label_names_the_value_and_not_an_alias() -> None:
    @partial(checkpoint, policy=NAMED)
    def labelled(x: Any) -> Any:
        return fnp.sin(checkpoint_name(fnp.exp(x), "kept"))

    assert origins(labelled, X) == ["named 'kept'"]
    assert counts(grad(lambda x: labelled(x).sum()), X)["exp"] == 1


# --- The barrier (PR#24062, #9661) ----------------------------------------------------------------------------------


def test_24062_no_barrier_within_a_loop_nor_on_the_forward_pass() -> None:
    text = jit(grad(lambda x: checkpoint(step)(x, 2.0).sum())).lower(X).as_text()
    assert text.count("optimization_barrier") <= 1
    looped = lambda x: scan(lambda c, w: (checkpoint(step)(c, w), None), x, WS)[0].sum()
    assert "optimization_barrier" not in jit(grad(looped)).lower(X).as_text()
    assert "optimization_barrier" not in jit(checkpoint(step)).lower(X, X).as_text()


def test_9661_a_function_that_is_checkpointed_anew_is_not_compiled_anew() -> None:
    def once() -> int:
        for policy in (None, NAMED):
            chosen = checkpoint(step, policy=policy)
            grad(lambda x, f=chosen: f(x, 2.0).sum())(X)
            chosen(X, 2.0)
        return compilation_counts().compiled

    first = once()
    assert once() == once() == first


# --- What is saved and why: inside a scan it is "output of scan", without a line or a name (PR#13734, PR#15151) -----


def test_15151_a_residual_is_told_with_its_line_its_place_and_its_users() -> None:
    def looped(x: Any) -> Any:
        return scan(lambda c, w: (cond(w[0] > 0.7, step, lambda c, w: c, c, w), None), x, WS)[0]

    told = explain_residuals(checkpoint(looped, policy=NAMED), X)
    (named,) = [r for r in told.residuals if r.label == "kept"]
    assert named.path == ("checkpoint", "for", "cond branch 1")
    assert (named.trips, named.bytes, named.bytes_each) == (3, 3 * X.nbytes, X.nbytes)
    assert named.source is not None and named.source.line == step.__code__.co_firstlineno + 1
    assert {(n.primitive, n.again) for n in named.needed_by} >= {("sin", True), ("cos", True)}
    assert (named.policy, named.verdict) == ("save_only_these_names('kept')", "save")
    assert named.flops > 0
    assert told.bytes == sum(r["bytes"] for r in told.to_dict()["residuals"])
    less = told.compare(explain_residuals(checkpoint(looped), X))
    assert [r.label for r in less.gone if r.label] == ["kept"]


# --- The policies of the peer by their names, and a page of them (#12417, PR#23831); preferences (pytorch PR#125795) --

OF_THE_PEER = """everything_saveable nothing_saveable dots_saveable checkpoint_dots dots_with_no_batch_dims_saveable
checkpoint_dots_with_no_batch_dims offload_dot_with_no_batch_dims save_anything_except_these_names
save_any_names_but_these save_only_these_names save_from_both_policies save_and_offload_only_these_names""".split()


@pytest.mark.parametrize("name", OF_THE_PEER)
def test_12417_the_guide_names_each_policy(name: str) -> None:
    assert callable(getattr(policies, name))
    root = Path(__file__).parent.parent.parent
    assert f"`{name}" in (root / "docs" / "checkpointing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("verdict", "kept"),
    [
        (policies.PREFER_SAVE, ["result of exp", "result of sin", "result of tanh"]),
        (policies.PREFER_RECOMPUTE, ["result of tanh"]),
    ],
)
def test_125795_preferences_are_weighed(verdict: Any, kept: list[str]) -> None:
    """A product is not worth doing again; what a chain of functions makes from it may be."""

    def layer(w: Any, x: Any) -> Any:
        h = fnp.tanh(x @ w)
        return fnp.exp(fnp.sin(h) * x + h * 2.0)

    args = np.ones((8, 8), np.float32), np.ones((4, 8), np.float32)
    assert origins(checkpoint(layer, policy=lambda eqn: verdict), *args) == kept


# --- Custom rules with both modes (#3996) ----------------------------------------------------------------------------


def test_3996_a_policy_reaches_into_the_functions_of_custom_rules_in_loops() -> None:
    for rule in (by_jvp, by_vjp):
        fun = lambda x, rule=rule: scan(lambda c, w: (rule(c * w), None), x, WS)[0]
        assert "named 'kept'" in origins(checkpoint(fun, policy=NAMED), X)
        assert_same(
            grad(lambda x, fun=fun: checkpoint(fun, policy=NAMED)(x).sum())(X),
            grad(lambda x, fun=fun: fun(x).sum())(X),
        )


# --- A budget and the memory that it leads to (pytorch #197838) -------------------------------------------------------


def test_197838_a_larger_budget_leads_to_no_smaller_peak() -> None:
    def loss(ws: Any, x: Any) -> Any:
        x, _ = scan(lambda h, w: (fnp.tanh(fnp.sin(h @ w) @ w.T), None), x, ws)
        return (x * x).sum()

    args = np.ones((12, 16, 64), np.float32), np.ones((32, 16), np.float32)
    jaxpr = make_jaxpr(loss)(*args)  # all budgets of one jaxpr share its plans

    def peak(budget: float) -> int:
        params = CheckpointParams(jaxpr, policies.undecided, Origin("loss"), budget=amount(budget))
        within = lambda *args: bind(checkpoint_p, *args, params=params)[0]
        return jit(grad(within)).lower(*args).compile().memory_analysis().temp

    peaks = [peak(k / 4) for k in range(5)]
    assert peaks == sorted(peaks) and peaks[0] < peaks[-1] / 2

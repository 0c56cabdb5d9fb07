"""`saved_residuals`: what it lists, how it names it, and how it prints."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from fiveloop.core import MinimumCut, custom_derivative, jit
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.loops import cond, for_loop, scan
from fiveloop.remat import checkpoint, checkpoint_name, policies, saved_residuals
from fiveloop.state import new_ref

X = np.ones(3, np.float32)


def origins(f: Any, *args: Any, **kwargs: Any) -> list[str]:
    return sorted(r.origin for r in saved_residuals(f, *args, **kwargs))


def test_arguments_go_by_their_names() -> None:
    def f(params: Any, *rest: Any, scale: Any) -> Any:
        return params["w"][0] * rest[0] * scale

    assert origins(f, {"w": [X]}, X, scale=X) == [
        "argument 1",
        "argument `params`['w'][0]",
        "argument `scale`",
        "result of mul",
    ]


def test_linear_functions_keep_nothing_of_their_arguments() -> None:
    assert not any("argument" in origin for origin in origins(lambda x: x + x, X))


def test_integers_are_not_differentiated() -> None:
    assert "argument `k`" not in origins(lambda x, k: x * 2.0 + k, X, 3)


def plain(f: Any) -> Any:
    return f


@pytest.mark.parametrize(
    "wrap", [plain, jit, partial(checkpoint, policy=policies.everything_saveable)]
)
def test_what_a_backward_rule_does_not_use_is_not_listed(wrap: Any) -> None:
    fwd = lambda x: (sp.sin(x), (sp.cos(x), ew.exp(x)))
    bwd = lambda kept, ct: (kept[0] * ct,)
    jvp = lambda p, t: (sp.sin(p[0]), sp.cos(p[0]) * t[0])
    for f in (
        custom_derivative(sp.sin, fwd=fwd, bwd=bwd),
        custom_derivative(sp.sin, fwd=fwd, bwd=bwd, jvp=jvp),
    ):
        assert origins(wrap(f), X) == ["result of cos"]
        looped = lambda x, f=f: scan(lambda c, _: (f(c), None), x, None, length=3)[0]
        kept = saved_residuals(wrap(looped), X)
        assert [(r.origin, r.trips) for r in kept] == [("result of cos", 3)]


@pytest.mark.parametrize("wrap", [plain, jit])
def test_what_a_checkpoint_keeps_is_named_by_what_made_it(wrap: Any) -> None:
    def f(x: Any) -> Any:
        return sp.sin(ew.exp(checkpoint_name(sp.sin(x), "a")))

    named = checkpoint(wrap(f), policy=policies.save_only_these_names("a"))
    assert origins(named, X) == ["argument `x`", "named 'a'"]
    everything = checkpoint(wrap(f), policy=policies.everything_saveable)
    assert "result of exp" in origins(everything, X)


OFFLOADED = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["a"]
)


@pytest.mark.parametrize("policy", [policies.nothing_saveable, OFFLOADED], ids=["none", "offload"])
@pytest.mark.parametrize("wrap", [plain, checkpoint(policy=policies.everything_saveable)])
def test_what_is_needed_outside_a_checkpoint_is_not_judged_by_its_policy(
    wrap: Any, policy: Any
) -> None:
    def f(x: Any) -> Any:
        y = checkpoint(lambda x: checkpoint_name(ew.exp(sp.sin(x)), "a"), policy=policy)(x)
        return y * sp.tanh(x)

    kept = [r for r in saved_residuals(wrap(f), X) if r.label == "a"]
    within, told = {r.verdict for r in kept}, {(r.policy, r.reason) for r in kept}
    assert within == ({"save", "offload"} if policy is OFFLOADED else {"save"})
    outside = ("", "needed outside the checkpoint")
    assert (outside if wrap is plain else ("everything_saveable", "the policy says so")) in told


def test_what_a_cut_keeps_is_named_by_what_made_it() -> None:
    def f(x: Any) -> Any:
        h = (x * x).sum() * x
        return sp.sin(h) * ew.exp(h) * sp.tanh(h)

    found = saved_residuals(checkpoint(f, policy=MinimumCut(share=2.0)), np.ones(8, np.float32))
    assert sorted(r.origin for r in found) == ["argument `x`", "result of reduce_sum"]
    (total,) = [r for r in found if r.origin == "result of reduce_sum"]
    assert total.source is not None
    assert total.source.file.endswith("test_residuals.py")


def test_what_a_ref_holds_is_what_was_written_before_it_is_read() -> None:
    def f(x: Any) -> Any:
        ref = new_ref(ew.exp(x))

        def g(z: Any) -> Any:
            old = sp.sin(ref[...])
            ref[...] = sp.tanh(z)
            return old

        return checkpoint(g)(x) * ref[...]

    told = {(r.origin, *[need.again for need in r.needed_by]) for r in saved_residuals(f, X)}
    assert {("result of get", True), ("result of tanh", False)} <= told


@pytest.mark.parametrize("prevent_cse", [True, False])
def test_what_is_computed_again_is_told_whatever_may_be_merged(prevent_cse: bool) -> None:
    step = checkpoint(lambda c, _: (sp.sin(ew.exp(c)), None), prevent_cse=prevent_cse)
    (carry,) = saved_residuals(lambda x: scan(step, x, None, length=3)[0], X)
    assert {(need.primitive, need.again) for need in carry.needed_by} == {("exp", True)}


def test_sizes_and_printing() -> None:
    @checkpoint
    def f(x: Any) -> Any:
        return sp.sin(sp.sin(x))

    found = saved_residuals(f, X)
    assert [(str(r.aval), r.bytes) for r in found] == [("f32[3]", 12)]
    assert found.bytes == 12
    assert str(found).splitlines() == [
        "f32[3]                       12 bytes  argument `x`",
        "1 residual, 12 bytes",
    ]


def test_lines_of_the_source() -> None:
    found = saved_residuals(lambda x: sp.sin(x), X)
    (cosine,) = [r for r in found if r.origin == "result of cos"]
    assert cosine.source is not None
    assert cosine.source.file.endswith("test_residuals.py")
    assert f"test_residuals.py:{cosine.source.line}" in str(cosine)


def test_a_function_is_expected() -> None:
    with pytest.raises(TypeError, match="saved_residuals: expected a function, got 3"):
        saved_residuals(3, X)  # type: ignore[arg-type]  # that is the point


def test_the_result_of_a_loop_is_kept_where_the_loop_does_not_run_again() -> None:
    def f(x: Any) -> Any:
        return scan(lambda c, _: (sp.sin(c), None), x, None, length=3)[0] * sp.tanh(x)

    told = {(r.trips, r.reason) for r in saved_residuals(checkpoint(f), X)}
    assert told == {
        (1, "in memory anyway"),
        (1, "its loop does not run again"),
        (3, "recomputation starts from it"),
    }


def test_what_a_step_reads_twice_is_saved_once() -> None:
    def step(i: Any, r: Any) -> None:
        r[...] = sp.sin(r[...] @ r[...])

    f = checkpoint(lambda x: for_loop(5, step, x))
    assert [str(r.aval) for r in saved_residuals(f, np.eye(3, dtype=np.float32))] == ["f32[5,3,3]"]


# What a branch only returned was needed by nobody, and saved by no policy around.
def test_what_a_branch_returns_is_needed_by_what_uses_its_result() -> None:
    def f(w: Any, x: Any) -> Any:
        return ew.exp(cond(x.sum() > 0, lambda x: sp.sin(x) @ w, sp.cos, x) @ w)

    w = np.eye(3, dtype=np.float32)
    kept = saved_residuals(checkpoint(f, policy=policies.dots_saveable), w, X)
    inner = next(r for r in kept if r.path[1:])
    assert [(need.primitive, need.again) for need in inner.needed_by] == [("dot_general", False)]
    assert inner.policy == "dots_saveable"


# The operations were looked up by the id of a jaxpr, which another had after the first was gone.
def test_values_read_of_a_ref_between_many_writes() -> None:
    def f(x: Any) -> Any:
        ref = new_ref(x)
        for _ in range(6):
            ref[0] = sp.sin(ref[1]) * ref[2]
            ref[1] = sp.cos(ref[...]).sum()
            x = x * ref[...] * sp.sin(ref[...])
        return x.sum()

    taken = lambda x: cond(x[0] > 0, f, lambda x: x.sum(), x)
    kept = saved_residuals(checkpoint(taken, policy=policies.everything_saveable), X)
    assert all(r.needed_by for r in kept)


# In a branch the array goes by its label, which no policy but one of names speaks of.
@pytest.mark.parametrize(
    "wrap", [plain, jit, lambda f: lambda x: cond(x[0] > 0, f, lambda x: x, x)]
)
def test_a_labelled_product_is_saved_as_a_product(wrap: Any) -> None:
    f = wrap(lambda x: checkpoint_name(sp.cos(x) @ np.eye(3, dtype=np.float32), "a") * x)
    _, product = saved_residuals(checkpoint(f, policy=policies.dots_saveable), X)
    told = product.origin, product.label, product.verdict, product.policy
    assert told == ("result of dot_general", "a", "save", "dots_saveable")


def test_the_contents_of_a_ref_are_not_what_one_element_was_given() -> None:
    def f(x: Any) -> Any:
        ref = new_ref(x)
        ref[0] = sp.sin(ref[1])
        return (ref[...] * x).sum()

    assert origins(checkpoint(f), X) == ["argument `x`"]

    def outside(ref: Any, x: Any) -> Any:
        ref[0] = sp.sin(ref[1])
        return (ref[...] * x).sum()

    (kept,) = [
        r for r in saved_residuals(checkpoint(outside), new_ref(X), X) if r.path and r.aval.shape
    ]
    assert (kept.origin, kept.reason) == ("result of get", "its Ref may have changed by then")


def test_a_rule_that_cannot_be_traced_is_taken_to_use_all() -> None:
    f = custom_derivative(
        lambda x: 2.0 * x,
        fwd=lambda x: (2.0 * x, (sp.cos(x), x)),
        bwd=lambda kept, ct: (kept[0] * ct if kept[1].sum() > 0 else ct,),
    )
    assert origins(f, X) == ["argument `x`", "result of cos"]


def test_a_residual_that_branches_share_is_named_by_all_of_them() -> None:
    labelled = lambda x: sp.sin(checkpoint_name(sp.tanh(x), "a"))
    f = lambda x: cond(x[0] > 0, lambda x: ew.exp(x) * 2.0, lambda x: sp.sin(x), x)
    g = lambda x: cond(x[0] > 0, labelled, lambda x: ew.exp(x), x)
    assert "result of cos or exp" in origins(f, X)
    saved = policies.save_only_these_names("a") | policies.first_of(
        lambda eqn: eqn.primitive.name == "exp"
    )
    kept = saved_residuals(checkpoint(g, policy=saved), X)
    assert {r.origin for r in kept} == {"argument `x`", "result of exp or named 'a'"}


def of_call(x: Any) -> Any:
    return sp.sin(jit(lambda y: sp.sin(ew.exp(y)))(x)).sum()


def of_branch(x: Any) -> Any:
    return sp.sin(cond(x[0] > 0, lambda x: sp.sin(ew.exp(x)), sp.cos, x)).sum()


def of_loop(x: Any) -> Any:
    return sp.sin(scan(lambda c, _: (sp.sin(ew.exp(c)), None), x, None, length=2)[0]).sum()


@pytest.mark.parametrize(
    ("f", "caller"), [(of_call, "closed_call"), (of_branch, "cond"), (of_loop, "for")]
)
def test_a_policy_saves_the_result_of_a_call(f: Any, caller: str) -> None:
    def saves_results(e: Any) -> bool:
        return bool(e.primitive.name == caller)

    kept = saved_residuals(checkpoint(f, policy=saves_results), X)
    verdicts = {r.origin: (r.verdict, r.reason, r.policy) for r in kept if r.path}
    carry = verdicts.pop("carry, result of sin", None)
    assert [*verdicts.values()] == [("save", "the policy says so", "saves_results")]
    # A loop's own states are not its results.
    assert (carry is not None) == (f is of_loop)
    assert carry is None or carry[:2] == ("recompute", "recomputation starts from it")

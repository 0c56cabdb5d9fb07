"""What each policy saves: the residuals of one function, by shape and origin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    RECOMPUTE,
    SAVE,
    Jaxpr,
    MinimumCut,
    Policy,
    Verdict,
    closed_call,
    custom_jvp,
    grad,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    stop_gradient,
    vjp,
    vmap,
)
from fiveloop.core.extend import SavingPlan, jaxprs_in, linearize_jaxpr, split, typecheck
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.dot import matmul
from fiveloop.core.primitives.shape import stack
from fiveloop.core.rules import Slots
from fiveloop.loops import cond
from fiveloop.remat import checkpoint, checkpoint_name, policies, saved_residuals
from fiveloop.state import debug_print

W = np.full((4, 5), 0.1, np.float32)
X = np.ones((3, 4), np.float32)
BATCHED = np.ones((2, 5, 3), np.float32)
LANES = np.ones((2, 1, 1), np.float32)
ARGUMENTS = {("f32[4,5]", "argument `w`"), ("f32[3,4]", "argument `x`")}


def layer(w: Any, x: Any) -> Any:
    """One product with weights, one with a batch, and a label between."""
    h = checkpoint_name(sp.sin(x @ w), "hidden")
    return ew.exp(matmul(sp.sin(h) * LANES, BATCHED))


def shown(residuals: Any) -> set[tuple[str, str]]:
    return {(str(r.aval), r.origin) for r in residuals}


def beside_arguments(policy: Policy | None) -> set[tuple[str, str]]:
    found = shown(saved_residuals(checkpoint(layer, policy=policy), W, X))
    assert found >= ARGUMENTS
    return {(aval, origin) for aval, origin in found - ARGUMENTS if origin != "a constant"}


DOT, BATCHED_DOT = ("f32[3,5]", "result of dot_general"), ("f32[2,3,3]", "result of dot_general")


def sines(eqn: policies.Candidate) -> bool:
    return eqn.primitive.name == "sin"


def cosines(eqn: policies.Candidate) -> Verdict:
    return SAVE if eqn.primitive.name == "cos" else RECOMPUTE


EXP = ("f32[2,3,3]", "result of exp")
MUCH_AGAIN = MinimumCut(memory_cost=100.0, share=5.0)

HIDDEN_AND_COS = {("f32[3,5]", "named 'hidden'"), ("f32[3,5]", "result of cos")}

CASES: dict[str, tuple[Policy | None, set[tuple[str, str]]]] = {
    "default": (None, set()),
    "nothing": (policies.nothing_saveable, set()),
    "everything": (
        policies.everything_saveable,
        {
            ("f32[3,5]", "result of cos"),
            ("f32[2,3,3]", "result of exp"),
        },
    ),
    "minimum cut": (MUCH_AGAIN, {DOT, EXP}),
    "dots": (policies.dots_saveable, {DOT, BATCHED_DOT}),
    "dots without batch": (policies.dots_with_no_batch_dims_saveable, {DOT}),
    "names": (policies.save_only_these_names("hidden"), {("f32[3,5]", "named 'hidden'")}),
    "other names": (policies.save_only_these_names("other"), set()),
    "a function to a verdict": (cosines, {("f32[3,5]", "result of cos")}),
    "a function of a primitive": (
        lambda prim, *avals, **params: prim.name == "cos",
        {("f32[3,5]", "result of cos")},
    ),
    "either, one of a primitive": (
        policies.dots_with_no_batch_dims_saveable | (lambda prim, *_, **params: prim.name == "cos"),
        {DOT, ("f32[3,5]", "result of cos")},
    ),
    "both, one of a primitive": (
        (lambda prim, *_, **params: prim.name == "dot_general")
        & policies.dots_with_no_batch_dims_saveable,
        {DOT},
    ),
    "dimensions of a contraction": (
        lambda prim, *_, **params: (
            prim.name == "dot_general" and not params["dimension_numbers"][1][0]
        ),
        {DOT},
    ),
    "no opinion": (lambda eqn: None, set()),
    "offloaded products": (policies.offload_dot_with_no_batch_dims("device", "pinned_host"), {DOT}),
    "offloaded names": (
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["other"], names_which_can_be_offloaded=["hidden"]
        ),
        {("f32[3,5]", "named 'hidden'")},
    ),
    "any name but": (policies.save_any_names_but_these("other"), {("f32[3,5]", "named 'hidden'")}),
    "any name but this": (policies.save_any_names_but_these("hidden"), set()),
    "anything but a name": (
        policies.save_anything_except_these_names("hidden"),
        {("f32[3,5]", "result of cos"), ("f32[2,3,3]", "result of exp")},
    ),
    "either": (policies.save_only_these_names("hidden") | cosines, HIDDEN_AND_COS),
    "either, a function first": (
        cosines | policies.save_only_these_names("hidden"),
        HIDDEN_AND_COS,
    ),
    "from both": (
        policies.save_from_both_policies(policies.save_only_these_names("hidden"), cosines),
        HIDDEN_AND_COS,
    ),
    "both": (policies.dots_saveable & policies.dots_with_no_batch_dims_saveable, {DOT}),
    "all but": (~policies.dots_saveable & cosines, {("f32[3,5]", "result of cos")}),
    "the first": (
        policies.first_of(policies.save_any_names_but_these("hidden"), policies.dots_saveable),
        {DOT, BATCHED_DOT},
    ),
    "by size": (
        lambda eqn: eqn.bytes == 60 and eqn.primitive.name != "name",
        {("f32[3,5]", "result of cos"), ("f32[3,5]", "result of sin")},
    ),
    "by work": (
        lambda eqn: eqn.flops >= 10 * eqn.bytes // 4,
        {("f32[3,5]", "result of cos"), EXP},
    ),
    "by types": (
        lambda eqn: eqn.in_avals != eqn.out_avals and eqn.out_avals[0].ndim == 2,
        {DOT},
    ),
}


@pytest.mark.parametrize(("policy", "want"), CASES.values(), ids=CASES)
def test_what_a_policy_saves(policy: Policy | None, want: set[tuple[str, str]]) -> None:
    assert beside_arguments(policy) == want


@pytest.mark.parametrize("wrap", [jit, closed_call], ids=["jit", "call"])
def test_a_policy_reaches_into_calls(wrap: Any) -> None:
    def f(w: Any, x: Any) -> Any:
        return wrap(lambda: sp.sin(x @ w))() * 2.0

    dots = checkpoint(f, policy=policies.dots_saveable)
    assert shown(saved_residuals(dots, W, X)) == {*ARGUMENTS, DOT}
    assert shown(saved_residuals(checkpoint(f), W, X)) == ARGUMENTS


def test_what_a_policy_sees_of_an_equation() -> None:
    seen: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}

    def look(eqn: Any) -> None:
        seen[eqn.primitive.name, eqn.path] = eqn.names
        assert eqn.bytes == sum(int(np.prod(a.shape)) * a.dtype.itemsize for a in eqn.out_avals)
        assert eqn.source is None or eqn.source.file

    def f(x: Any) -> Any:
        y = checkpoint_name(checkpoint_name(ew.exp(x), "inner"), "outer")
        return closed_call(
            lambda: closed_call(lambda: sp.cos(checkpoint_name(sp.tanh(y), "deep")))()
        )()

    saved_residuals(checkpoint(f, policy=look), X)
    assert seen["exp", ("checkpoint",)] == ("inner", "outer")
    assert seen["tanh", ("checkpoint", "closed_call", "closed_call")] == ("deep",)
    assert seen["cos", ("checkpoint", "closed_call", "closed_call")] == ()


@pytest.mark.parametrize("answer", [3, "save", SAVE.kind, (), policies.Offload])
def test_an_answer_that_is_no_verdict(answer: Any) -> None:
    with pytest.raises(TypeError, match="a checkpoint policy must return a Verdict") as raised:
        grad(lambda x: checkpoint(lambda y: sp.sin(sp.sin(y)), policy=lambda eqn: answer)(x))(1.0)
    assert repr(answer) in str(raised.value)
    assert "test_policies.py" in str(raised.value)


def test_names_in_composed_policies_are_checked(caplog: pytest.LogCaptureFixture) -> None:
    misspelt = policies.save_only_these_names("hiden")
    policy = policies.first_of(~(misspelt | policies.dots_saveable), policies.everything_saveable)
    with caplog.at_level("WARNING", logger="fiveloop.remat"):
        saved_residuals(checkpoint(layer, policy=policy), W, X)
    (record,) = caplog.records
    assert "the policy names 'hiden'" in record.getMessage()
    assert "did you mean 'hidden'?" in record.getMessage()


def test_a_name_cannot_be_both_saved_and_offloaded() -> None:
    with pytest.raises(ValueError, match="these are given as both: 'a'"):
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a", "b"], names_which_can_be_offloaded=["a"]
        )
    with pytest.raises(TypeError, match="must be a sequence of names, got the string 'ab'"):
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved="ab", names_which_can_be_offloaded=[]
        )
    each: Any = lambda *names: iter(names)
    assert policies.save_and_offload_only_these_names(
        names_which_can_be_saved=each("a"), names_which_can_be_offloaded=each("b")
    ) == policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"]
    )
    with pytest.raises(TypeError, match="the name of a memory"):
        policies.offload_dot_with_no_batch_dims(offload_dst=3)  # type: ignore[arg-type]


OPINIONS: list[Verdict | None] = [
    None, RECOMPUTE, policies.PREFER_RECOMPUTE, policies.PREFER_SAVE, policies.Offload(), SAVE
]  # fmt: skip


@pytest.mark.parametrize("first", range(len(OPINIONS)))
@pytest.mark.parametrize("second", range(len(OPINIONS)))
def test_operators_do_not_depend_on_the_order(first: int, second: int) -> None:
    """`|` takes what is more for saving, `&` what is less; a verdict stands before no opinion."""
    seen: list[policies.Candidate] = []
    saved_residuals(checkpoint(sp.sin, policy=seen.append), 1.0)
    p = policies.first_of(lambda eqn: OPINIONS[first])
    q = policies.first_of(lambda eqn: OPINIONS[second])
    less, more = sorted((first, second))
    assert (p | q)(seen[0]) == (q | p)(seen[0]) == OPINIONS[more]
    less = more if more == 1 else less
    assert (p & q)(seen[0]) == (q & p)(seen[0]) == OPINIONS[less]


def test_an_offload_takes_its_two_memories_in_order() -> None:
    there = policies.Offload("device", "unpinned_host")
    assert (there.kind, there.src, there.dst) == ("offload", "device", "unpinned_host")
    with pytest.raises(TypeError, match=r"Offload: src must be the name of a memory.* got 3"):
        policies.Offload(3)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("slots", [0, -3, 1.5, True, None])
def test_states_that_are_saved_are_counted(slots: Any) -> None:
    with pytest.raises(ValueError, match="Slots: slots must be an integer above 0, got"):
        Slots(slots=slots)


def test_composed_policies_are_values() -> None:
    def composed() -> Any:
        return (
            ~(policies.dots_saveable | policies.save_only_these_names("a")) & policies.minimum_cut
        )

    assert composed() == composed()
    assert hash(composed()) == hash(composed())
    assert composed().weighs
    assert not (policies.dots_saveable | policies.everything_saveable).weighs


def test_within_another_checkpoint_both_policies_must_save() -> None:
    def nested(inner: Policy, outer: Policy) -> set[tuple[str, str]]:
        f = checkpoint(lambda w, x: checkpoint(layer, policy=inner)(w, x) * 2.0, policy=outer)
        return shown(saved_residuals(f, W, X)) - ARGUMENTS - {("f32[2,5,3]", "a constant")}

    assert nested(policies.dots_saveable, policies.dots_with_no_batch_dims_saveable) == {DOT}
    assert nested(policies.everything_saveable, policies.nothing_saveable) == set()


def test_a_cut_within_another_checkpoint() -> None:
    def nested(inner: Policy, outer: Policy) -> set[tuple[str, str]]:
        f = checkpoint(lambda w, x: checkpoint(layer, policy=inner)(w, x) * 2.0, policy=outer)
        return shown(saved_residuals(f, W, X)) - ARGUMENTS - {("f32[2,5,3]", "a constant")}

    everything = policies.everything_saveable
    assert nested(MUCH_AGAIN, everything) == nested(MUCH_AGAIN, MUCH_AGAIN) == {DOT, EXP}
    assert nested(MUCH_AGAIN, policies.dots_with_no_batch_dims_saveable) == {DOT}
    assert nested(MUCH_AGAIN, policies.nothing_saveable) == set()


def called(f: Any) -> Any:
    return jit(f)


def chosen_by_a_branch(f: Any) -> Any:
    return lambda w, x: cond(x[0, 0] > 0.0, f, f, w, x)


def checkpointed(f: Any) -> Any:
    return checkpoint(f, policy=policies.everything_saveable)


@pytest.mark.parametrize("within", [called, chosen_by_a_branch, checkpointed])
def test_a_policy_that_saves_all_but_a_name_computes_it_again_also_as_a_result(within: Any) -> None:
    """The result of a call, of a branch or of another checkpoint is judged as what it is within."""

    def block(w: Any, x: Any) -> Any:
        hidden = within(lambda w, x: checkpoint_name(sp.tanh(x @ w), "hidden"))(w, x)
        return sp.sin(hidden @ w)

    size = np.ones((8, 8), np.float32)
    f = checkpoint(block, policy=policies.save_anything_except_these_names("hidden"))
    kept = [(r.label, r.origin) for r in saved_residuals(f, size, size)]
    assert not [pair for pair in kept if "hidden" in pair[0] or "tanh" in pair[1]]
    assert ("", "result of dot_general") in kept
    for got, want in zip(grad_of(f)(size, size), grad_of(block)(size, size), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def grad_of(f: Any) -> Any:
    return grad(lambda w, x: f(w, x).sum(), argnums=(0, 1))


def test_policies_with_a_choice_are_values() -> None:
    assert MinimumCut() == policies.minimum_cut
    assert MinimumCut(memory_cost=1.0) != policies.minimum_cut


def names_in(jaxpr: Jaxpr) -> list[str]:
    inner = [name for e in jaxpr.eqns for j in jaxprs_in(e.params) for name in names_in(j)]
    return [*[e.primitive.name for e in jaxpr.eqns], *inner]


def labelled_twice(x: Any) -> Any:
    return sp.sin(checkpoint_name(checkpoint_name(ew.exp(x), "other"), "hidden"))


def labelled_within(x: Any) -> Any:
    return closed_call(lambda y: sp.sin(checkpoint_name(ew.exp(y), "hidden")))(sp.cos(x))


def labelled_late(x: Any) -> Any:
    y = ew.exp(x)
    z = sp.sin(y)
    return z * checkpoint_name(y, "hidden")


@pytest.mark.parametrize("function", [labelled_twice, labelled_within, labelled_late])
def test_a_label_serves_the_derivative_of_what_made_its_value(function: Any) -> None:
    """`exp` is its own derivative: where its result is saved under a name, it is not computed again."""
    policy = policies.save_only_these_names("hidden")
    jaxpr = make_jaxpr(checkpoint(function, policy=policy))(X)
    known, linear, _, _ = linearize_jaxpr(jaxpr, (True,))
    typecheck(known)
    typecheck(linear)
    assert names_in(known).count("exp") == 1
    assert "exp" not in names_in(linear)
    np.testing.assert_allclose(
        np.asarray(grad(lambda x: checkpoint(function, policy=policy)(x).sum())(X)),
        np.asarray(grad(lambda x: function(x).sum())(X)),
        rtol=1e-6,
    )


def products(jaxpr: Jaxpr) -> int:
    return names_in(jaxpr).count("dot_general")


def forward_and_back(f: Any, policy: Policy | None) -> int:
    """The products of the known half and of the linear one; 2 to each product of `f` if none is made again."""
    jaxpr = make_jaxpr(checkpoint(f, policy=policy))(SQUARE)
    known, linear, _, _ = linearize_jaxpr(jaxpr, (True,))
    typecheck(known)
    typecheck(linear)
    return products(known) + products(linear)


SQUARE = np.full((3, 3), 0.5, np.float32)
MATRIX = np.arange(9, dtype=np.float32).reshape(3, 3) / 10


@custom_jvp
def with_rule(x: Any) -> Any:
    return MATRIX @ sp.sin(x)


@with_rule.defjvp
def with_rule_jvp(primals: Any, tangents: Any) -> Any:
    return with_rule(*primals), MATRIX @ (sp.cos(primals[0]) * tangents[0])


def product(x: Any) -> Any:
    return checkpoint_name(MATRIX @ sp.sin(x), "product")


def unlabelled(x: Any) -> Any:
    return MATRIX @ sp.sin(x)


def plus(x: Any) -> Any:
    return product(x) + x * x


CALLS: dict[str, Any] = {
    "jit": jit(product),
    "call": closed_call(product),
    "of a call": jit(closed_call(product)),
    "twice": lambda x: jit(product)(sp.sin(jit(product)(x))),
    "transposed": jit(lambda x: product(x).T),
    "plus": jit(plus),
    "beside": jit(lambda x: product(x) * ew.exp(x)),
    "known": lambda x: sp.sin(jit(lambda a: product(a) + a)(stop_gradient(x))) * x,
    "rule": with_rule,
    "plus in a rule": jit(lambda x: with_rule(x) * 2.0),
    "checkpoint": checkpoint(unlabelled),
    "plus in a checkpoint": checkpoint(plus, policy=policies.dots_saveable),
    "lanes": lambda x: vmap(jit(product))(stack([x, x * 2.0])),
}


def tripled(x: Any) -> Any:
    return (checkpoint_name(ew.exp(x), "a") * 3.0).sum()


def added(x: Any) -> Any:
    return (checkpoint_name(sp.sin(x), "a") * 3.0).sum()


DERIVATIVES: dict[str, Any] = {
    "grad": lambda f: lambda x: grad(f)(x).sum(),
    "grad twice": lambda f: lambda x: grad(lambda x: grad(f)(x).sum())(x).sum(),
    "jvp": lambda f: lambda x: jvp(f, (x,), (x,))[1],
    "linearize": lambda f: lambda x: linearize(f, x)[1](x),
    "vjp": lambda f: lambda x: vjp(f, x)[1](np.float32(1.0))[0].sum(),
    "grad of vmap": lambda f: lambda x: grad(lambda x: vmap(f)(stack([x, x])).sum())(x).sum(),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(stack([x, x])).sum(),
    "grad of jit": lambda f: lambda x: grad(jit(f))(x).sum(),
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
def test_a_label_in_a_derivative_within_a_checkpoint_is_known(
    derivative: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the exponential its own derivative is left, of the sine nothing: neither name is told to be unknown."""
    named = policies.save_only_these_names("a")
    with caplog.at_level("WARNING", logger="fiveloop.remat"):
        for function in tripled, added, added:
            f = checkpoint(derivative(function), policy=named)
            grad(f)(X)
            grad(f)(X)
    assert not caplog.records
    f = checkpoint(derivative(tripled), policy=named)
    kept = [r.origin for r in saved_residuals(f, X) if r.origin != "argument `x`"]
    assert set(kept) <= {"named 'a'"}
    assert "name[name=a]" in str(make_jaxpr(derivative(tripled))(X))


def test_labels_given_in_a_checkpoint_within_another_are_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    within = checkpoint(DERIVATIVES["grad"](added))
    with caplog.at_level("WARNING", logger="fiveloop.remat"):
        for _ in range(2):
            grad(checkpoint(lambda x: within(x) * 2.0, policy=policies.save_only_these_names("a")))(
                X
            )
    assert not caplog.records


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_policy_is_obeyed_for_results_of_calls(call: Any) -> None:
    def f(x: Any) -> Any:
        return sp.sin(call(x))

    wanted = forward_and_back(f, policies.everything_saveable)
    assert forward_and_back(f, policies.dots_saveable) == wanted
    assert forward_and_back(f, None) > wanted
    kept = [r.origin for r in saved_residuals(checkpoint(f, policy=policies.dots_saveable), SQUARE)]
    assert kept.count("argument `x`") == 1
    np.testing.assert_allclose(
        np.asarray(grad(lambda x: checkpoint(f, policy=policies.dots_saveable)(x).sum())(SQUARE)),
        np.asarray(grad(lambda x: f(x).sum())(SQUARE)),
        rtol=1e-5,
    )


def is_product(eqn: policies.Candidate) -> bool:
    return eqn.primitive.name == "dot_general"


NAMED = policies.save_only_these_names("product")


@pytest.mark.parametrize(
    ("policy", "kept"), [(NAMED, "named 'product'"), (is_product, "result of dot_general")]
)
def test_of_several_results_a_policy_saves_its_own(policy: Policy, kept: str) -> None:
    """The label is on one result; the other is made again from it, and not kept."""

    @jit
    def layer(x: Any) -> Any:
        y = product(x)
        return ew.exp(y), y, x

    def f(x: Any) -> Any:
        a, b, c = layer(x)
        return sp.sin(a) * sp.sin(b) * sp.sin(c)

    found = saved_residuals(checkpoint(f, policy=policy), SQUARE)
    assert sorted(r.origin for r in found) == ["argument `x`", kept]
    assert forward_and_back(f, policy) == 2


@pytest.mark.parametrize("call", [jit, closed_call, checkpoint])
def test_a_policy_judges_results_of_calls_by_where_the_call_is(call: Any) -> None:
    def f(x: Any) -> Any:
        return sp.sin(call(unlabelled)(x))

    def calls(eqn: policies.Candidate) -> bool:
        return eqn.primitive.name in ("closed_call", "checkpoint") and eqn.path == ("checkpoint",)

    found = saved_residuals(checkpoint(f, policy=calls), SQUARE)
    assert sorted(r.origin for r in found) == ["argument `x`", "result of dot_general"]


def test_an_outer_policy_knows_the_labels_of_results_of_checkpoints() -> None:
    def f(x: Any) -> Any:
        return sp.sin(checkpoint(product)(x))

    found = saved_residuals(checkpoint(f, policy=NAMED), SQUARE)
    assert sorted(r.origin for r in found) == ["argument `x`", "named 'product'"]
    assert forward_and_back(f, NAMED) == 2


def test_what_a_call_does_to_unknown_values_is_not_done_again_for_its_results() -> None:
    """The staged half of the call prints, so it cannot be cut in two: the known result is kept."""

    @jit
    def layer(x: Any, t: Any) -> Any:
        debug_print("{}", t)
        return product(x) + 1.0, t * 2.0

    def f(x: Any, t: Any) -> Any:
        y, t = layer(x, t)
        return sp.sin(y) * t

    jaxpr = make_jaxpr(f)(SQUARE, SQUARE)
    cut = split(jaxpr, (False, True), (True, True), SavingPlan(policies.dots_saveable))
    assert products(cut.staged) == 0
    assert [eqn.primitive.name for eqn in cut.staged.eqns if eqn.effects] == ["closed_call"]


def test_policies_are_told_as_a_program_writes_them() -> None:
    def large(eqn: policies.Candidate) -> bool:
        return eqn.bytes > 100

    both = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["b", "a"], names_which_can_be_offloaded=["c"]
    )
    for policy, written in (
        (policies.checkpoint_dots, "dots_saveable"),
        (policies.offload_dot_with_no_batch_dims(), "offload_dot_with_no_batch_dims()"),
        ((policies.dots_saveable | large) & ~both, "(dots_saveable | large) & ~save_and_offload"),
        (
            both,
            "save_and_offload_only_these_names(names_which_can_be_saved=['a', 'b'], names_which_",
        ),
        (policies.save_any_names_but_these("a"), "save_any_names_but_these('a')"),
        (policies.first_of(lambda prim, *avals, **params: None), "first_of(<lambda>)"),
        (MinimumCut(memory_cost=2.0), "MinimumCut(memory_cost=2.0, "),
    ):
        assert policies.as_written(policy).startswith(written)

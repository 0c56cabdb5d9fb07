"""A checkpoint changes neither values nor derivatives, and computes again what it does not save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    Jaxpr,
    Policy,
    closed_call,
    grad,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    tree_leaves,
    vjp,
    vmap,
)
from fiveloop.core.extend import Eqn, jaxprs_in
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.remat import checkpoint, checkpoint_name, policies, saved_residuals
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.compare import assert_all_close

Function = Callable[..., Any]

W = np.linspace(-1.0, 1.0, 9).reshape(3, 3)
X = np.array([0.5, -0.25, 1.5])
V = np.array([1.0, 2.0, -1.0])
BATCH = np.stack([X, V, X * V, X - V])


def sines(x: Any) -> Any:
    """A chain, with one value labelled."""
    return sp.sin(checkpoint_name(sp.sin(ew.exp(x)), "inner"))


def product(x: Any) -> Any:
    return sp.tanh(sp.tanh(x @ W) @ W)


def cell(x: Any) -> Any:
    """Reads, writes and accumulations of a Ref that is made within."""
    ref = new_ref(x)
    ref[0] = sp.sin(ref[1]) * ref[2]
    ref[1] += ref[0] * x[2]
    ref[2] += 1.0
    return freeze(ref)


def called(x: Any) -> Any:
    """Calls within."""
    return jit(sines)(closed_call(product)(x))


PROGRAMS: dict[str, Function] = {f.__name__: f for f in (sines, product, cell, called)}
POLICIES: dict[str, Policy | None] = {
    "default": None,
    "everything": policies.everything_saveable,
    "nothing": policies.nothing_saveable,
    "dots": policies.dots_saveable,
    "dots without batch": policies.dots_with_no_batch_dims_saveable,
    "names": policies.save_only_these_names("inner"),
    "own": lambda eqn: eqn.primitive.name == "sin",
}


def first_order(f: Function) -> Function:
    """What is compared under every policy, in one program."""
    return lambda x, v, xs: {"value": f(x), "grad": grad(scalar(f))(x)}


def all_orders(f: Function) -> Function:
    """The same, and what transforms of transforms give."""
    s = scalar(f)
    return lambda x, v, xs: {
        **first_order(f)(x, v, xs),
        "jvp": jvp(f, (x,), (v,)),
        "jvp of grad": jvp(grad(s), (x,), (v,)),
        "grad of grad": grad(lambda y: (grad(s)(y) * v).sum())(x),
        "vmap of grad": vmap(grad(jit(s)))(xs),
        "grad of vmap": grad(lambda y: vmap(s)(y).sum())(xs),
    }


def scalar(f: Function) -> Function:
    return lambda x: (f(x) ** 2).sum()


def compare(got: Any, want: Any) -> None:
    for name in got:
        assert_all_close(tree_leaves(got[name]), tree_leaves(want[name]), name)


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """What the programs give without checkpoints."""
    return {name: jit(all_orders(f))(X, V, BATCH) for name, f in PROGRAMS.items()}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str, policy: Policy | None, plain: dict[str, Any]) -> None:
    f = checkpoint(PROGRAMS[name], policy=policy)
    got = jit(first_order(f))(X, V, BATCH)
    assert set(got) == {"value", "grad"}
    compare(got, plain[name])


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_under_a_budget(
    name: str, budget: float, plain: dict[str, Any]
) -> None:
    f = checkpoint(PROGRAMS[name], budget=budget)
    orders = all_orders if budget == 0.0 else first_order
    got = jit(orders(f))(X, V, BATCH)
    assert set(got) >= {"value", "grad"}
    compare(got, plain[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_transforms_of_transforms(name: str, plain: dict[str, Any]) -> None:
    f = checkpoint(PROGRAMS[name], policy=POLICIES["names"])
    got = jit(all_orders(f))(X, V, BATCH)
    assert got.keys() == plain[name].keys()
    compare(got, plain[name])


@pytest.mark.parametrize(
    ("inner", "outer"), [("nothing", "everything"), ("everything", "nothing"), ("names", "dots")]
)
def test_a_checkpoint_within_another(inner: str, outer: str, plain: dict[str, Any]) -> None:
    def nested(x: Any) -> Any:
        y = jit(checkpoint(sines, policy=POLICIES[inner]))(closed_call(product)(x))
        return checkpoint_name(y, "result")

    f = checkpoint(nested, policy=POLICIES[outer])
    got = jit(first_order(f))(X, V, BATCH)
    assert set(got) == {"value", "grad"}
    compare(got, plain["called"])


@pytest.mark.parametrize("name", ["sines", "cell"])
def test_eagerly(name: str, plain: dict[str, Any]) -> None:
    f = checkpoint(PROGRAMS[name])
    assert_all_close(f(X), plain[name]["value"], "value")
    assert_all_close(grad(scalar(f))(X), plain[name]["grad"], "gradient")
    assert_all_close(jvp(f, (X,), (V,)), plain[name]["jvp"], "jvp")
    assert_all_close(linearize(f, X)[1](V), plain[name]["jvp"][1], "linearize")


def test_a_checkpoint_reads_and_writes_refs_from_outside() -> None:
    def step(ref: Any, scale: Any) -> Any:
        ref[0] = sp.sin(ref[1]) * scale
        ref[1] += ref[0]
        return ref[0] * scale

    def run(wrap: Callable[[Function], Function]) -> Function:
        def f(x: Any, scale: Any) -> Any:
            ref = new_ref(x)
            first = wrap(step)(ref, scale)
            second = wrap(lambda s: step(ref, s))(scale * first)
            return (freeze(ref) ** 2).sum() * second

        return jit(lambda *args: (f(*args), grad(f, argnums=[0, 1])(*args)))

    got, want = run(checkpoint)(X, 0.5), run(lambda f: f)(X, 0.5)
    assert_all_close(tree_leaves(got), tree_leaves(want), "Refs")


def test_what_a_ref_held_is_not_read_again_after_a_write() -> None:
    def f(x: Any) -> Any:
        ref = new_ref(x)

        @checkpoint
        def square_and_clear() -> Any:
            y = ref[...] * ref[...]
            ref[...] = y * 0.0
            return y.sum()

        return square_and_clear()

    assert_all_close([jit(grad(f))(X)], [2 * X], "gradient")


def test_pytrees_and_keyword_arguments() -> None:
    @checkpoint
    def f(params: dict[str, Any], *, x: Any) -> tuple[Any, dict[str, Any]]:
        return sp.sin(params["w"]) * x, {"twice": x * 2.0}

    y, aux = f({"w": X}, x=V)
    assert f.__name__ == "f"
    assert_all_close((y, aux["twice"]), (np.sin(X) * V, V * 2), "results")
    got = jit(grad(lambda p: f(p, x=V)[0].sum()))({"w": X})
    assert_all_close([got["w"]], [np.cos(X) * V], "gradient")


def test_integers_pass_through() -> None:
    @checkpoint
    def f(x: Any, k: Any) -> tuple[Any, Any]:
        return sp.sin(x) * k, k + 1

    (value, k), pull = vjp(f, X, 3)
    assert k == 4
    assert_all_close([value], [np.sin(X) * 3], "value")
    assert_all_close([pull((V, 1))[0]], [np.cos(X) * 3 * V], "cotangent")


def equations(jaxpr: Jaxpr) -> list[Eqn]:
    """All equations of a program, those of its nested programs too."""
    return [e for eqn in jaxpr.eqns for e in (eqn, *nested_equations(eqn))]


def nested_equations(eqn: Eqn) -> list[Eqn]:
    return [e for inner in jaxprs_in(eqn.params) for e in equations(inner)]


def count(jaxpr: Jaxpr, primitive: str) -> int:
    return sum(eqn.primitive.name == primitive for eqn in equations(jaxpr))


def chain(x: Any) -> Any:
    return sp.sin(sp.sin(sp.sin(x)))


def test_what_is_not_saved_is_computed_again() -> None:
    def both(policy: Policy) -> Jaxpr:
        def run(x: Any) -> Any:
            y, pull = vjp(checkpoint(chain, policy=policy), x)
            return y, pull(x)

        return make_jaxpr(run)(X)

    jaxpr, saving = both(policies.nothing_saveable), both(policies.everything_saveable)
    assert (count(saving, "sin"), count(saving, "cos")) == (3, 3)
    assert (count(jaxpr, "sin"), count(jaxpr, "cos")) == (5, 3)
    (again,) = [e for e in jaxpr.eqns if e.primitive.name == "checkpoint" and e.params.recomputes]
    assert count(again.params.jaxpr, "sin") == 2, "of the last one only the cosine is wanted"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_recomputation_stays_apart_when_compiled(dtype: str) -> None:
    x = np.eye(4).astype(dtype)

    def products(**how: Any) -> tuple[int, Any]:
        def both(x: Any) -> Any:
            y, pull = vjp(checkpoint(lambda x: sp.sin(sp.sin(x @ x) @ x), **how), x)
            return y, pull(x)

        compiled = jit(both).lower(x).compile()
        return compiled.as_text().count(" dot("), compiled(x)[1][0]

    (apart, kept), (merged, same) = products(), products(prevent_cse=False)
    assert (apart, merged) == (8, 6)
    np.testing.assert_allclose(same, kept, rtol=1e-2 if dtype == "bfloat16" else 1e-6)
    with pytest.raises(TypeError, match="prevent_cse"):
        checkpoint(chain, prevent_cse=1)  # type: ignore[call-overload]


def test_the_recomputation_waits_for_the_cotangent_in_memory() -> None:
    def temporary(wrap: Any) -> int:
        def blocks(x: Any) -> Any:
            for _ in range(8):
                x = wrap(lambda h: sp.sin(sp.sin(sp.sin(sp.sin(h) @ h) @ h)))(x)
            return x.sum()

        return (
            jit(grad(blocks)).lower(np.ones((64, 64), np.float32)).compile().memory_analysis().temp
        )

    assert temporary(checkpoint) < 0.6 * temporary(lambda f: f)


def test_light_equations_alone_are_computed_again_when_compiled() -> None:
    def temporary(wrap: Any) -> int:
        def layers(ws: Any) -> Any:
            h = np.ones((64, 64), np.float32)
            for w in ws:
                h = wrap(lambda h: h * ew.exp(sp.sin(h)))(h @ w)
            return h.sum()

        ws = [np.ones((64, 64), np.float32)] * 6
        return jit(grad(layers)).lower(ws).compile().memory_analysis().temp

    assert temporary(checkpoint) < 0.7 * temporary(lambda f: f)


def test_equal_policies_are_equal() -> None:
    assert policies.save_only_these_names("a", "b") == policies.save_only_these_names("b", "a")
    assert policies.dots_saveable != policies.dots_with_no_batch_dims_saveable
    assert hash(policies.nothing_saveable) == hash(type(policies.nothing_saveable)())


def test_a_function_that_is_made_anew_is_the_same_policy_unless_it_may_change() -> None:
    bound = [4]

    def larger(least: int) -> Policy:
        return lambda eqn: eqn.bytes > least

    def larger_now() -> Policy:
        return lambda eqn: eqn.bytes > bound[0]

    def in_program(policy: Policy) -> object:
        return make_jaxpr(checkpoint(sp.sin, policy=policy))(1.0).eqns[0].params.policy

    assert in_program(larger(4)) == in_program(larger(4)) != in_program(larger(5))
    assert in_program(larger_now()) != in_program(larger_now())
    assert policies.dots_saveable | larger(4) == policies.dots_saveable | larger(4)


def test_static_arguments_are_python_values() -> None:
    def power(x: Any, n: int, *, shift: float = 0.0) -> Any:
        out = x + shift
        for _ in range(n - 1):
            out = out * x
        return out.sum()

    plain = grad(lambda x: power(x, 3, shift=0.5))(X)
    one: Any = np.int64(1)
    for again in (
        checkpoint(power, static_argnums=1),
        checkpoint(power, static_argnums=one),
        checkpoint(power, static_argnames=["n"], policy=policies.everything_saveable),
    ):
        assert_all_close(grad(again)(X, 3, shift=0.5), plain)
        assert_all_close(jit(grad(again), static_argnums=1)(X, 3, shift=0.5), plain)


def test_a_decorator_with_arguments() -> None:
    @checkpoint(policy=policies.everything_saveable, static_argnums=1)
    def f(x: Any, power: int) -> Any:
        return sp.sin(x**power)

    @checkpoint()
    def g(x: Any) -> Any:
        return sp.sin(sp.sin(x))

    assert f.__name__ == "f"
    kept = [r.origin for r in saved_residuals(lambda x: f(x, 2), X)]
    assert "result of cos" in kept
    assert [r.origin for r in saved_residuals(g, X)] == ["argument `x`"]


def test_a_function_without_names_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="fiveloop.remat"):
        grad(checkpoint(sp.tanh, policy=policies.save_only_these_names("a")))(1.0)
    assert "names 'a', and no value in tanh has a name; label a value: `check" in caplog.text

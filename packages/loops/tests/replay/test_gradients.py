"""The gradient of a `while` is that of the steps written out, in every order and combination of modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jacfwd, jacrev, jit, jvp, linear_transpose, make_jaxpr, vmap
from fiveloop.core.errors import RuleError
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import new_ref

X = np.float64(0.7)
LANES = np.array([0.1, 0.5, 1.0, 3.0, 200.0])
W = np.random.default_rng(0).normal(size=(4, 4)) * 0.5
V = np.linspace(0.2, 0.9, 4)
Step = Callable[[Any], Any]
Many = Callable[[Any, Step, Any], Any]


def steps(n: Any, step: Step, x: Any) -> Any:
    """So many steps, by a `while`."""
    return while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(c[1])), (0, x))[1]


def written_out(n: int, step: Step, x: Any) -> Any:
    """The same without a loop."""
    for _ in range(n):
        x = step(x)
    return x


def grow(x: Any) -> Any:
    return while_loop(lambda y: y < 100.0, lambda y: y * y + 1.0, x)


def grow_written_out(x: Any) -> Any:
    while x < 100.0:
        x = x * x + 1.0
    return x


def with_refs(loop: bool) -> Callable[[Any], Any]:
    """Steps that write a Ref at indices and accumulate into another."""

    def by_refs(x: Any) -> Any:
        r, total = new_ref(fnp.zeros(6, np.float64)), new_ref(np.float64(0))
        r[0] = x

        def body(i: Any) -> Any:
            r[i + 1] = fnp.sin(r[i]) * x
            total[...] += r[i] * r[i + 1]
            return i + 1

        while_loop(lambda i: i < 5, body, 0)
        return r[5] * 2.0 + total[...]

    def by_hand(x: Any) -> Any:
        r, total = [x], 0.0
        for i in range(5):
            r.append(fnp.sin(r[i]) * x)
            total = total + r[i] * r[i + 1]
        return r[5] * 2.0 + total

    return by_refs if loop else by_hand


def until_a_ref_says(loop: bool) -> Callable[[Any], Any]:
    """The condition reads what the body writes."""

    def by_refs(x: Any) -> Any:
        r = new_ref(x)

        def body(i: Any) -> Any:
            r[...] = r[...] * 1.5 + 0.1 * x
            return i + 1

        n = while_loop(lambda i: r[...] < 10.0, body, 0)
        return r[...] * n

    def by_hand(x: Any) -> Any:
        r, n = x, 0
        while r < 10.0:
            r, n = r * 1.5 + 0.1 * x, n + 1
        return r * n

    return by_refs if loop else by_hand


def nested(loop: bool) -> Callable[[Any], Any]:
    """A `while` and a `for` in a `while`, and a branch."""
    many: Many = steps if loop else written_out

    def power(z: Any, x: Any) -> Any:
        if not loop:
            return (z * x + 1.0) * x + 1.0

        def body(k: Any, r: Any) -> None:
            r[...] = r[...] * x + 1.0

        return for_loop(2, body, z)

    def f(x: Any) -> Any:
        def outer(y: Any) -> Any:
            z = power(many(3, lambda z: fnp.sin(z) * x, y), x)
            return z + cond(y > 1, lambda a: a * a, fnp.cos, z)

        return many(4, outer, x)

    return f


def deep(loop: bool) -> Callable[[Any], Any]:
    """A loop in a loop in a loop."""
    many: Many = steps if loop else written_out

    def f(x: Any) -> Any:
        inner: Step = lambda b: many(2, lambda c: fnp.sin(c) * x, b)
        return many(2, lambda a: many(2, lambda b: inner(b) + a, a), x)

    return f


def in_a_for(loop: bool) -> Callable[[Any], Any]:
    """Of more steps in each step of a `for`."""

    def by_loops(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i + 1] = steps(i, lambda z: fnp.sin(z) * x, r[i])

        return for_loop(4, body, fnp.zeros(5, np.float64).at[0].set(x))[4]

    def by_hand(x: Any) -> Any:
        z = x
        for i in range(4):
            z = written_out(i, lambda z: fnp.sin(z) * x, z)
        return z

    return by_loops if loop else by_hand


def choosing(loop: bool) -> Callable[[Any], Any]:
    """A branch that writes a Ref: it computes factors of both a state's and a constant's cotangents."""

    def run(x: Any) -> Any:
        ref = new_ref(fnp.stack([x, x * x]))

        def write(y: Any) -> Any:
            ref[0] = fnp.sin(ref[0] * ref[1]) * x
            return y * x

        def step(y: Any) -> Any:
            return cond(y < 2.0, write, lambda y: y * ref[0], y) + 0.5

        y = (steps if loop else written_out)(4, step, x)
        return y + ref[0] * ref[1]

    return run


def newton(loop: bool) -> Callable[[Any], Any]:
    """Until the residual is small."""

    def step(a: Any, y: Any) -> Any:
        return y - (y * y * y - a) / (3.0 * y * y)

    def by_loop(a: Any) -> Any:
        return while_loop(lambda y: abs(y * y * y - a) > 1e-9, lambda y: step(a, y), a + 1.0)

    def by_hand(a: Any) -> Any:
        y = a + 1.0
        while abs(y * y * y - a) > 1e-9:
            y = step(a, y)
        return y

    return by_loop if loop else by_hand


def waves(many: Many, n: int) -> Step:
    """So many sines."""
    return lambda x: many(n, lambda y: fnp.sin(y) * 1.3 * x, x)


PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **{f"{n} steps": (waves(steps, n), waves(written_out, n)) for n in (0, 1, 2, 20)},
    "until it is large": (grow, grow_written_out),
    "Refs": (with_refs(True), with_refs(False)),
    "a condition on a Ref": (until_a_ref_says(True), until_a_ref_says(False)),
    "nested": (nested(True), nested(False)),
    "three deep": (deep(True), deep(False)),
    "in a for": (in_a_for(True), in_a_for(False)),
    "a branch on a Ref": (choosing(True), choosing(False)),
    "Newton": (newton(True), newton(False)),
    "checkpointed": (
        checkpoint(lambda x: steps(3, lambda y: fnp.sin(y) * x, x) ** 2),
        lambda x: written_out(3, lambda y: fnp.sin(y) * x, x) ** 2,
    ),
}
ORDERS: dict[str, Callable[[Step], Step]] = {
    "reverse over reverse": lambda f: grad(grad(f)),
    "forward over reverse": lambda f: lambda x: jvp(grad(f), (x,), (1.0,))[1],
    "reverse over forward": lambda f: grad(lambda x: jvp(f, (x,), (1.0,))[1]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_written_out(name: str) -> None:
    loop, by_hand = PROGRAMS[name]
    np.testing.assert_allclose(jit(grad(loop))(X), grad(by_hand)(X), rtol=1e-9)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "name", ["0 steps", "2 steps", "Refs", "a condition on a Ref", "nested", "a branch on a Ref"]
)
def test_second_derivatives(name: str, order: str) -> None:
    loop, by_hand = PROGRAMS[name]
    np.testing.assert_allclose(jit(ORDERS[order](loop))(X), grad(grad(by_hand))(X), rtol=1e-9)


def test_as_it_comes() -> None:
    for loop, by_hand in (PROGRAMS["Refs"], PROGRAMS["Newton"]):
        np.testing.assert_allclose(grad(loop)(X), grad(by_hand)(X), rtol=1e-9)


BATCHED: dict[str, Callable[[Step], Step]] = {
    "vmap of grad": lambda f: vmap(grad(f)),
    "grad of vmap": lambda f: grad(lambda xs: vmap(f)(xs).sum()),
    "vmap of the second": lambda f: vmap(grad(grad(f))),
}


@pytest.mark.parametrize("order", BATCHED)
@pytest.mark.parametrize("name", ["until it is large", "a condition on a Ref", "in a for"])
def test_lanes_of_different_counts(name: str, order: str) -> None:
    loop, by_hand = PROGRAMS[name]
    once = grad(grad(by_hand)) if order == "vmap of the second" else grad(by_hand)
    want = [once(x) for x in LANES]
    np.testing.assert_allclose(jit(BATCHED[order](loop))(LANES), want, rtol=1e-9)


def test_what_a_lane_computes_in_vain_leaves_no_trace() -> None:
    """A lane that is done has no slope where the others go on, even if there it would be infinite."""

    def f(x: Any) -> Any:
        return while_loop(lambda y: y > 0.0, lambda y: (y - fnp.sqrt(y)) * (y > 1.5), x)

    xs = np.array([0.25, 2.0, 9.0])
    want = [grad(f)(x) for x in xs]
    assert np.isfinite(want).all()
    np.testing.assert_allclose(vmap(grad(f))(xs), want)


def pole(w: Any, y: Any, n: Any) -> Any:
    """Steps whose slopes are infinite at 2, by the value and by both constants."""
    return steps(n, lambda x: w[0] / (x - 2.0) + w[1] * x + y, y)


W2, AT_POLE, COUNTS = np.array([0.7, 0.3]), np.array([0.5, 2.0, 2.0]), np.array([3, 0, 0])
OF_LANES: dict[str, Callable[[Step], Step]] = {
    "first": grad,
    "second": lambda f: grad(lambda w: fnp.sin(grad(f)(w)).sum()),
    "tangent": lambda f: lambda w: jvp(grad(f), (w,), (W2,))[1],
}


@pytest.mark.parametrize("order", OF_LANES)
def test_lanes_that_have_ended_at_a_pole(order: str) -> None:
    """They give what the lanes share no slope, and no NaN."""

    def shared(w: Any) -> Any:
        return vmap(pole, in_axes=(None, 0, 0))(w, AT_POLE, COUNTS).sum()

    alone = lambda w: pole(w, AT_POLE[0], 3)
    want = OF_LANES[order](alone)(W2)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(jit(OF_LANES[order](shared))(W2), want, rtol=1e-9)


def test_gradients_of_gradients_of_lanes_at_a_pole() -> None:
    of_lanes = vmap(grad(pole), in_axes=(None, 0, 0))
    found = grad(lambda w: of_lanes(w, AT_POLE, COUNTS).sum())(W2)
    np.testing.assert_allclose(found, grad(lambda w: grad(pole)(w, 0.5, 3).sum())(W2), rtol=1e-9)


def test_batches_of_batches_at_a_pole() -> None:
    """The inner lanes share a number, and the outer ones an array of another for each inner lane."""
    counts = np.array([[3, 0, 0], [0, 0, 0]])

    def both(w: Any, y: Any) -> Any:
        inner = lambda w, n: vmap(pole, in_axes=(None, 0, 0))(w, y, n)
        return vmap(inner)(w, counts).sum()

    (by_w, by_y) = jit(grad(both, argnums=(0, 1)))(np.array([W2, W2]), AT_POLE)
    want_w, want_y = grad(pole, argnums=(0, 1))(W2, AT_POLE[0], 3)
    np.testing.assert_allclose(by_w, [want_w, [0.0, 0.0]], rtol=1e-9)
    np.testing.assert_allclose(by_y, [want_y + 1.0, 2.0, 2.0], rtol=1e-9)


def test_a_while_in_the_steps_gives_an_ended_lane_no_pole() -> None:
    """It takes no step there, so that what it gives is no lane's."""

    def f(w: Any, n: Any) -> Any:
        step = lambda x: w / steps(2, lambda z: z * 0.5 + w, x) + 1.0
        return steps(n, step, np.float64(0))

    lanes = lambda w: vmap(f, in_axes=(None, 0))(w, np.array([2, 0])).sum()
    np.testing.assert_allclose(grad(lanes)(0.7), grad(f)(0.7, 2), rtol=1e-6)


def test_matrices_in_every_order() -> None:
    loop = lambda v: steps(5, lambda h: fnp.tanh(W @ h), v)
    by_hand = lambda v: written_out(5, lambda h: fnp.tanh(W @ h), v)
    np.testing.assert_allclose(jit(jacrev(loop))(V), jacfwd(by_hand)(V), rtol=1e-9)
    want = jacfwd(jacrev(by_hand))(V)
    for order in (jacfwd(jacrev(loop)), jacrev(jacfwd(loop)), jacrev(jacrev(loop))):
        np.testing.assert_allclose(jit(order)(V), want, rtol=1e-8, atol=1e-12)


def test_a_linear_loop_has_a_transpose() -> None:
    power = lambda x: steps(3, lambda y: W @ y, x)
    (ct,) = linear_transpose(power, V)(V)
    np.testing.assert_allclose(ct, np.linalg.matrix_power(W.T, 3) @ V)


def test_a_condition_on_what_is_linear() -> None:
    with pytest.raises(RuleError, match="its condition depends on what the function is linear in"):
        linear_transpose(lambda x: while_loop(lambda y: y < 10.0, lambda y: y * 2.0, x), X)(X)


def test_a_state_is_kept_and_the_number_of_steps() -> None:
    jaxpr = make_jaxpr(grad(grow))(X)
    known, replay = jaxpr.eqns[0], jaxpr.eqns[-1]
    assert (known.primitive.name, replay.primitive.name) == ("while", "replay")
    assert replay.invars[:2] == (known.outvars[0], jaxpr.invars[0])


@pytest.mark.parametrize(
    "loop",
    [steps, lambda n, step, x: scan(lambda c, _: (step(c), c), x, np.zeros(4), n)[0]],
    ids=["while", "scan of a length"],
)
def test_there_may_be_no_lanes(loop: Many) -> None:
    """The most steps of none are none."""

    def each(w: Any) -> Any:
        f = lambda w, n: loop(n, lambda x: w * x, w)
        return vmap(grad(f), in_axes=(None, 0))(w, np.zeros(0, np.int32))

    assert each(X).shape == (0,)
    assert grad(lambda w: each(w).sum())(X) == 0.0

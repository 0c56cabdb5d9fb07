"""What users of the peer's Refs ask for and do not have, by the number of the fact or of the issue.

Above each test stands what the peer (version 0.12, on a CPU) does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    FrozenRefError,
    closed_call,
    custom_jvp,
    custom_vjp,
    ds,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linearize,
    stop_gradient,
    vjp,
    vmap,
)
from fiveloop.core.extend import as_value
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import addupdate, freeze, get, new_ref, run_state, swap
from fiveloop.testing.core.misuse import assert_misuse

X = as_value(np.array([0.5, -1.0, 2.0]))


def assert_same(got: Any, want: Any, tolerance: float = 1e-6) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=tolerance, atol=tolerance)


# The gradient of `R[i] = sin(R[i - 1])` costs n ** 2: 173 ms at n = 32,000, against 0.4 ms for a scan with a scalar
# carry. Two copies of the whole buffer are in the body of the transposed loop; forward mode has them too.
@pytest.mark.parametrize("transform", ["primal", "jvp", "gradient", "jvp of gradient"])
def test_f1_loops_over_refs_cost_what_they_touch(transform: str) -> None:
    def recurrence(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i + 1] = fnp.sin(r[i])

        return for_loop(len(x) - 1, body, x)[-1]

    gradient = grad(recurrence)
    fun: Callable[[Any], Any] = {
        "primal": recurrence,
        "jvp": lambda x: jvp(recurrence, (x,), (x,))[1],
        "gradient": gradient,
        "jvp of gradient": lambda x: jvp(gradient, (x,), (x,))[1],
    }[transform]
    sizes = (2000, 8000)
    found = [jit(fun).lower(np.ones(n, np.float32)).compile() for n in sizes]
    assert [c.copies for c in found] == [0, 0]
    small, large = [c.memory_analysis().temp + 4 * n for c, n in zip(found, sizes, strict=True)]
    assert large <= 4.4 * small


# A while loop whose condition reads a Ref that its body writes is silently wrong under jit: the condition sees the
# old contents, so that this one would never end. Without jit it is refused as two uses of one Ref.
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_f3_a_condition_sees_what_the_body_writes(wrap: Callable[..., Any]) -> None:
    @wrap
    def count(limit: Any) -> Any:
        ref = new_ref(0)

        def body(i: Any) -> Any:
            ref[...] += 2
            return i + 1

        return while_loop(lambda i: ref[...] < limit, body, 0), ref[...]

    steps, held = count(7)
    assert (int(steps), int(held)) == (4, 8)


# jacfwd and hessian of any function that uses a Ref within fail, loops or not: "at vmap out_axes[0], got axis spec
# None but output was batched".
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_f4_jacobians_of_functions_with_refs(wrap: Callable[..., Any]) -> None:
    def plain(x: Any) -> Any:
        a, b = x[1] * x[2], x[1] + fnp.sin(x[0])
        return fnp.stack([a + a**2, b + b**2, x[2]])

    def fun(x: Any) -> Any:
        ref = new_ref(x)
        ref[0] = x[1] * x[2]
        ref[1] += fnp.sin(x[0])
        return for_loop(2, lambda i, r: addupdate(r, i, ref[i] ** 2), ref[...])

    for jacobian in (jacfwd, jacrev):
        assert_same(wrap(jacobian(fun))(X), jacobian(plain)(X))
    energies = [lambda x, f=f: (f(x) ** 2).sum() for f in (fun, plain)]
    assert_same(wrap(hessian(energies[0]))(X), hessian(energies[1])(X))


# grad of a checkpointed function that writes a Ref, passed in or closed over, fails with "'ValAccum' object has no
# attribute 'ref'".
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
@pytest.mark.parametrize("closes_over", [False, True])
def test_f5_checkpoints_that_write_refs(closes_over: bool, wrap: Callable[..., Any]) -> None:
    def step(ref: Any, x: Any) -> Any:
        ref[0] = fnp.sin(x[0]) * ref[1]
        ref[1] += x[1] ** 2
        return ref[0] * x[2]

    def fun(x: Any) -> Any:
        ref = new_ref(x)
        if closes_over:
            out = checkpoint(lambda x: step(ref, x))(x)
        else:
            out = checkpoint(step)(ref, x)
        return out * ref[...].sum()

    def plain(x: Any) -> Any:
        first, second = fnp.sin(x[0]) * x[1], x[1] + x[1] ** 2
        return first * x[2] * (first + second + x[2])

    assert_same(wrap(grad(fun))(X), grad(plain)(X))
    assert_same(wrap(hessian(fun))(X), hessian(plain)(X))


# vmap of a function that writes to a Ref that it closes over is an error, whatever is written; so is the same Ref
# for all lanes as an argument.
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_f8_lanes_accumulate_into_a_ref_from_outside(wrap: Callable[..., Any]) -> None:
    total, count = new_ref(np.float64(0)), new_ref(0)

    @wrap
    def run(xs: Any) -> Any:
        def lane(ref: Any, x: Any) -> Any:
            total[...] += x
            ref[...] += 1
            return ref[...] * x

        return vmap(lane, in_axes=(None, 0))(count, xs)

    run(X)
    assert (float(total[...]), int(count[...])) == (1.5, 3)


# A slice of fixed size with a start known only at run time, `r[i:i+2]`, is an error about tracers and bools, which
# does not say that there is another way to write it.
def test_f8_slices_with_traced_starts() -> None:
    ref = new_ref(np.arange(5.0))
    jit(lambda i: addupdate(ref, ds(i, 2), 10.0))(3)
    assert_same(ref[...], [0, 1, 2, 13, 14])
    error = "TypeError|ConcretizationError|IndexError"
    with pytest.raises(Exception, match="ds") as caught:
        jit(lambda i: ref[i : i + 2])(3)
    assert type(caught.value).__name__ in error.split("|")


# An eager write copies the whole buffer: 22.8 ms for one element of 10 ** 7 floats.
def test_f9_eager_writes_are_in_place() -> None:
    ref: Any = new_ref(np.zeros(1000, np.float32))
    ref[0] = 1.0
    place = ref.array.buffer.unsafe_buffer_pointer()
    for i in range(1, 4):
        ref[i] = 1.0
        ref[i] += 1.0
        swap(ref, i, 3.0)
        assert ref.array.buffer.unsafe_buffer_pointer() == place
    assert float(ref[...].sum()) == 10.0


# Refs closed over by a while loop, read in its body or in its condition, are not supported (#18357).
def test_18357_refs_in_while_loops() -> None:
    table, seen = new_ref(np.array([3, 0, 4, 1, 2])), new_ref(np.zeros(5, np.int32))

    def follow(start: Any) -> Any:
        def body(k: Any) -> Any:
            seen[k] += 1
            return table[k]

        return while_loop(lambda k: seen[k] == 0, body, start)

    assert int(jit(follow)(0)) == 0
    assert np.asarray(seen[...]).tolist() == [1, 1, 0, 1, 0]


# A function with a custom rule that uses a Ref within cannot be run: there is no discharge of custom_jvp (#27470).
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_27470_refs_in_custom_rules(wrap: Callable[..., Any]) -> None:
    @custom_jvp
    def forward(x: Any) -> Any:
        return run_state(lambda r: addupdate(r, ..., r[...] ** 2))(x)

    forward.defjvp(lambda primals, dots: (forward(*primals), dots[0] * 10.0))

    @custom_vjp
    def backward(x: Any) -> Any:
        return run_state(lambda r: addupdate(r, ..., r[...] ** 2))(x)

    def pull(res: Any, ct: Any) -> Any:
        ref = new_ref(ct)
        ref[...] *= 10.0
        return (freeze(ref),)

    backward.defvjp(lambda x: (backward(x), None), pull)
    for rule in (forward, backward):
        assert_same(wrap(rule)(X), X + X**2)

        def total(x: Any, f: Any = rule) -> Any:
            return f(x).sum()

        def looped(x: Any, f: Any = rule) -> Any:
            return for_loop(2, lambda i, r: r.__setitem__(..., f(r[...])), x).sum()

        assert_same(wrap(grad(total))(X), [10, 10, 10])
        assert_same(wrap(grad(looped))(X), [100, 100, 100])
        assert_same(wrap(vmap(grad(rule)))(X), [10, 10, 10])


# A function with a custom rule that takes a Ref, and is called in a loop over Refs, has no discharge either.
def test_27470_custom_rules_that_take_refs() -> None:
    @custom_jvp
    def push(ref: Any, x: Any) -> Any:
        ref[...] += x
        return ref[...] * x

    @push.defjvp
    def push_jvp(primals: Any, dots: Any) -> Any:
        (ref, x), (ref_dot, x_dot) = primals, dots
        out = push(ref, x)
        ref_dot[...] += x_dot
        return out, ref_dot[...] * x + ref[...] * x_dot

    def fun(x: Any, step: Any) -> Any:
        ref = new_ref(x[0])
        return scan(lambda c, v: (c + step(ref, v), None), 0.0 * x[0], x)[0] * freeze(ref)

    def plain(ref: Any, x: Any) -> Any:
        ref[...] += x
        return ref[...] * x

    want = jvp(lambda x: fun(x, plain), (X,), (X,))
    for wrap in (lambda f: f, jit):
        got = wrap(lambda x: jvp(lambda x: fun(x, push), (x,), (x,)))(X)
        assert_same(got[0], want[0])
        assert_same(got[1], want[1])


# The gradient of a Ref's rule in a scan that runs in reverse was wrong (#32411).
def test_32411_gradients_accumulated_in_a_reverse_scan() -> None:
    def fun(w: Any, xs: Any) -> Any:
        total = new_ref(w)

        def body(carry: Any, x: Any) -> Any:
            total[...] = total[...] * x + carry
            return carry * w, None

        scan(body, 1.0, xs, reverse=True)
        return freeze(total)

    def plain(w: Any, xs: Any) -> Any:
        total, carry = w, 1.0
        for k in reversed(range(3)):
            total, carry = total * xs[k] + carry, carry * w
        return total

    w = as_value(np.float64(1.3))
    for k in (0, 1):
        assert_same(jit(grad(fun, k))(w, X), grad(plain, k)(w, X))


# A value under differentiation cannot be written to a Ref from outside (#26361); the error says so, and no more.
def test_26361_a_value_is_stored_by_stopping_its_gradient() -> None:
    log = new_ref(np.zeros(3))

    def fun(x: Any) -> Any:
        log[...] = stop_gradient(x**2)
        return (x**3).sum()

    assert_same(jit(grad(fun))(X), 3 * X**2)
    assert_same(log[...], X**2)


# A Ref can be used after it has been frozen, although the documentation forbids it.
def test_a_frozen_ref_is_at_its_end() -> None:
    ref = new_ref(X)
    freeze(ref)
    uses: list[Callable[[], Any]] = [lambda: ref[0], lambda: swap(ref, 0, 1.0), lambda: freeze(ref)]
    for use in uses:
        with pytest.raises(FrozenRefError, match=r"frozen at .*test_needs_refs\.py"):
            use()


# stop_gradient of a Ref fails somewhere within (PR 22521).
def test_22521_stop_gradient_of_a_ref() -> None:
    ref = new_ref(X)
    assert_misuse(
        lambda: stop_gradient(ref),
        TypeError,
        "stop_gradient: expected `x` to be an array, got Ref{f64[3]}; read a Ref first: `ref[...]`",
    )


# Refs work in some transforms of the peer and not in others; a list is nowhere. Here is one function under each.
def with_ref(x: Any) -> Any:
    """A loop over a Ref that it closes over, with a branch."""
    ref = new_ref(x)

    def body(i: Any, total: Any) -> None:
        here = closed_call(lambda: get(ref, i) * 2.0)()
        ref[i] = cond(i % 2 == 0, lambda: here**2, lambda: fnp.sin(here))
        total[...] += ref[i] * ref[0]

    return for_loop(3, body, 0.0 * x[0])


def without_ref(x: Any) -> Any:
    first, second, third = (2 * x[0]) ** 2, fnp.sin(2 * x[1]), (2 * x[2]) ** 2
    return first * (first + second + third)


EVERYWHERE: dict[str, Callable[[Callable[..., Any]], Callable[[Any], Any]]] = {
    "jit": jit,
    "vmap": lambda f: lambda x: vmap(f)(fnp.stack([x, 2 * x])),
    "grad": grad,
    "jvp": lambda f: lambda x: jvp(f, (x,), (x,))[1],
    "jacfwd": jacfwd,
    "jacrev": jacrev,
    "hessian": hessian,
    "linearize": lambda f: lambda x: linearize(f, x)[1](x),
    "vjp": lambda f: lambda x: vjp(f, x)[1](as_value(np.float64(2)))[0],
    "checkpoint": lambda f: grad(checkpoint(f)),
    "closed_call": lambda f: grad(closed_call(f)),
    "scan": lambda f: lambda x: scan(lambda c, v: (c, f(v)), 0, fnp.stack([x, 2 * x]))[1],
    "for": lambda f: grad(lambda x: for_loop(2, lambda i, r: addupdate(r, i, f(r[...])), x)[1]),
    "while": lambda f: (
        lambda x: while_loop(lambda v: v < 100.0, lambda v: v + abs(f(x)) + 1.0, f(x))
    ),
    "cond": lambda f: grad(lambda x: cond(x[0] > 0, f, lambda x: x[0], x)),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(fnp.stack([x, 2 * x])),
    "grad of vmap": lambda f: grad(lambda x: vmap(f)(fnp.stack([x, 2 * x])).sum()),
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_one_function_under_every_transform(name: str) -> None:
    transform = EVERYWHERE[name]
    want = transform(without_ref)(X)
    assert_same(transform(with_ref)(X), want)
    assert_same(jit(transform(with_ref))(X), want)

"""Loops that accumulate by monoids: right in every lane and order of derivative, and in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.testing.remat.references  # noqa: F401  # the oracle learns what a checkpoint is
from fiveloop.core import grad, jit, jvp, vmap
from fiveloop.core.extend import as_value
from fiveloop.loops import cond, for_loop, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import accumulate, freeze, new_ref
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.loops.laws import check_function

STEPS = 2000
SMOOTH = ["add", "mul", "max", "min"]
RNG = np.random.default_rng(0)


def one_place(monoid: str) -> Callable[..., Any]:
    """In each step one element, chosen at run time, takes up a share."""

    def fun(x: Any, share: Any, k: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            accumulate(refs[0], refs[2][i], refs[1][i], monoid)

        return for_loop(len(k), body, (x, share, k))[0]

    return fun


def several_places(monoid: str) -> Callable[..., Any]:
    """In each step two elements, often the same one twice, take up a share each."""

    def fun(x: Any, share: Any, k: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            place = refs[2][i] % np.array([4, 2], np.int32)
            accumulate(refs[0], place, refs[1][i] * np.array([1.0, 0.9], np.float32), monoid)

        return for_loop(len(k), body, (x, share, k))[0]

    return fun


PROGRAMS = {"one place": one_place, "several places": several_places}
every_program = pytest.mark.parametrize("program", list(PROGRAMS.values()), ids=list(PROGRAMS))
TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "primal": lambda f: f,
    "jvp": lambda f: lambda x, v, k: jvp(lambda *a: f(*a, k), (x, v), (x, v))[1],
    "gradient": lambda f: grad(lambda x, v, k: (f(x, v, k) * x).sum(), (0, 1)),
    "jvp of gradient": lambda f: (
        lambda x, v, k: jvp(grad(lambda x, v: (f(x, v, k) * x).sum(), (0, 1)), (x, v), (x, v))[1]
    ),
}


def arguments(steps: int, dtype: Any = np.float32) -> tuple[Any, Any, Any]:
    x, share = RNG.uniform(0.5, 1.5, (2, steps)).astype(dtype)
    return as_value(x), as_value(share), as_value(RNG.integers(0, steps, steps, np.int32))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("monoid", SMOOTH)
@every_program
def test_no_step_copies_an_array(program: Any, monoid: str, transform: str) -> None:
    compiled = jit(TRANSFORMS[transform](program(monoid))).lower(*arguments(STEPS)).compile()
    assert "while" in compiled.as_text()
    assert compiled.copies == 0


@pytest.mark.parametrize("monoid", SMOOTH)
def test_no_step_of_many_lanes_copies_an_array(monoid: str) -> None:
    lanes = [np.stack([np.asarray(a)] * 3) for a in arguments(300)]
    loss = lambda x, v, k: (vmap(one_place(monoid))(x, v, k) * x).sum()
    for fun in (loss, grad(loss, (0, 1))):
        assert jit(fun).lower(*map(as_value, lanes)).compile().copies == 0


@pytest.mark.parametrize("monoid", SMOOTH)
@every_program
def test_the_laws_hold(program: Any, monoid: str) -> None:
    x, share = RNG.uniform(0.5, 1.5, (2, 4))
    k = np.array([1, 3, 1, 0], np.int32)

    def fun(x: Any, share: Any) -> Any:
        return program(monoid)(x, share, as_value(k))

    assert check_function(fun, x, share).run()[0].shape == (4,)


def branches(monoid: str, x: Any, share: Any) -> Any:
    """Branches that accumulate by one monoid, by another, and not at all."""
    ref = new_ref(x)

    def body(i: Any, done: Any) -> None:
        def here(v: Any) -> Any:
            accumulate(ref, i, v, monoid)
            return v

        def there(v: Any) -> Any:
            accumulate(ref, np.array([0, 0]), v, "max")
            return v * 2.0

        done[...] += cond(i % 2 == 0, here, there, share[i])

    total = for_loop(4, body, share[0])
    return freeze(ref) * total


def steps_until(monoid: str, x: Any, share: Any) -> Any:
    """A while loop whose condition reads what its body accumulates."""
    ref = new_ref(x)

    def body(i: Any) -> Any:
        accumulate(ref, i % 3, share[i], monoid)
        accumulate(ref, 3, share[i] + 1.0, "add")
        return i + 1

    count = while_loop(lambda i: (i < 4) & (ref[3] < 6.0), body, 0)
    return freeze(ref) * (count + 1.0)


@pytest.mark.parametrize("monoid", SMOOTH)
def test_branches_and_checkpoints(monoid: str) -> None:
    x, share = RNG.uniform(0.5, 1.5, (2, 4))
    fun = lambda x, share: branches(monoid, x, share)
    plain = check_function(fun, x, share).run()
    assert_all_close(check_function(checkpoint(fun), x, share).run(), plain)


@pytest.mark.parametrize("monoid", SMOOTH)
@pytest.mark.parametrize("program", [branches, steps_until])
def test_lanes_that_go_their_own_ways(program: Any, monoid: str) -> None:
    x, share = RNG.uniform(0.5, 1.5, (2, 3, 4))

    def fun(x: Any, v: Any) -> Any:
        return program(monoid, x, v)

    lanes = [np.asarray(fun(as_value(a), as_value(b))) for a, b in zip(x, share, strict=True)]
    for run in (vmap(fun), jit(vmap(fun))):
        assert_all_close([np.asarray(run(as_value(x), as_value(share)))], [np.stack(lanes)])


def shared_by_lanes(w: Any, xs: Any) -> Any:
    """Lanes that accumulate into one Ref what is the same in all of them, and differentiable."""
    total = new_ref(0.0 * w)

    def lane(x: Any) -> Any:
        def body(i: Any, own: Any) -> None:
            total[...] += w * w
            own[...] += x * w

        out = for_loop(3, body, 0.0 * w)
        accumulate(total, ..., w, "max")
        accumulate(total, ..., w, "mul")
        return out

    return vmap(lane)(xs).sum() + freeze(total)


def test_derivatives_of_what_all_lanes_do_alike() -> None:
    def by_hand(w: Any, xs: Any) -> Any:
        return 3.0 * xs.sum() * w + 3.0 * len(xs) * w**2 * w ** len(xs)

    w, xs = as_value(np.float64(1.3)), as_value(np.arange(4.0))
    for transform in (lambda f: f, grad, lambda f: grad(grad(f)), lambda f: jit(grad(f))):
        got, want = (np.asarray(transform(f)(w, xs)) for f in (shared_by_lanes, by_hand))
        np.testing.assert_allclose(got, want, rtol=1e-12)

"""What all lanes of a `vmap` share needs no axis: from whichever function it comes, and out of whichever construct."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
import fiveloop.random as random
import fiveloop.testing.loops.references
import fiveloop.testing.remat.references  # noqa: F401  # the oracle learns what a loop and a checkpoint are
from fiveloop import loops
from fiveloop.core import (
    all_gather,
    axis_index,
    closed_call,
    custom_jvp,
    custom_vjp,
    custom_vmap,
    grad,
    jit,
    jvp,
    pmax,
    pmean,
    psum,
    vjp,
    vmap,
)
from fiveloop.loops import cond, for_loop, fori_loop, scan, switch, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import KeyStream, new_ref
from fiveloop.testing.core.compare import assert_close
from fiveloop.testing.core.samples import sample

Function = Callable[..., Any]
X = np.array([0.5, 1.25, -0.75])
WEIGHTS = np.array([1.0, -2.0, 3.0])

# What a lane does with its element, and what that is of the whole array.
COLLECTIVES: dict[str, tuple[Function, Function]] = {
    "psum": (lambda x: psum(fnp.sin(x), "i"), lambda x: fnp.sin(x).sum()),
    "pmean": (lambda x: pmean(x * x, "i"), lambda x: (x * x).mean()),
    "pmax": (lambda x: pmax(x * x, "i"), lambda x: (x * x).max()),
    "all_gather": (
        lambda x: (all_gather(fnp.sin(x), "i") * WEIGHTS).sum(),
        lambda x: (fnp.sin(x) * WEIGHTS).sum(),
    ),
}


def by_jvp(f: Function) -> Function:
    custom = custom_jvp(lambda x: f(x))
    custom.defjvp(lambda primals, tangents: jvp(f, primals, tangents))
    return custom


def by_vjp(f: Function) -> Function:
    custom = custom_vjp(lambda x: f(x))
    custom.defvjp(lambda x: (f(x), x), lambda x, ct: vjp(f, x)[1](ct))
    return custom


KINDS: dict[str, Function] = {"plain": lambda f: f, "custom_jvp": by_jvp, "custom_vjp": by_vjp}


def in_scan(f: Function) -> Function:
    def run(x: Any) -> Any:
        last, rows = scan(lambda c, k: (c + f(x * k), c * f(x)), np.float64(1.0), np.arange(3.0))
        return last + rows.sum()

    return run


def written(f: Function) -> Function:
    def run(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i] = f(x) * (i + 1.0)

        return for_loop(3, body, np.zeros(3)).sum()

    return run


def written_in_branch(f: Function) -> Function:
    def run(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            def write() -> None:
                r[i] = f(x) * (i + 1.0) + r[i - 1]

            cond(i > 0, write, lambda: None)

        return for_loop(3, body, np.ones(3)).sum()

    return run


def added_in_branch(f: Function) -> Function:
    def run(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            cond(i > 0, lambda: r.addupdate(f(x) * (i + 1.0), i), lambda: None)

        return for_loop(3, body, np.ones(3)).sum()

    return run


def written_in_loop(f: Function) -> Function:
    def run(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            def inner(j: Any, nothing: Any) -> None:
                r[j] = r[j] * 0.5 + f(x) * (i + 1.0)

            for_loop(2, inner, None)

        return for_loop(3, body, np.ones(2)).sum()

    return run


def in_while(f: Function) -> Function:
    def run(x: Any) -> Any:
        step = lambda c: (c[0] + 1, c[1] + c[2], f(x))
        return while_loop(lambda c: c[0] < 3, step, (0, np.float64(0.0), np.float64(1.0)))[1]

    return run


def nested(f: Function) -> Function:
    step = checkpoint(lambda c, x: c * 0.5 + jit(f)(x))
    return jit(
        lambda x: fori_loop(0, 3, lambda i, c: cond(i > 0, step, jit(step), c, x), np.float64(1.0))
    )


CONSTRUCTS: dict[str, Function] = {
    "nothing": lambda f: f,
    "jit": jit,
    "closed_call": closed_call,
    "checkpoint": checkpoint,
    "jit of jit": lambda f: jit(lambda x: 2.0 * jit(f)(x) + 1.0),
    "one of two results": lambda f: lambda x: jit(lambda y: (y, f(y) + 1.0))(x)[1],
    "computed on in a call": lambda f: lambda x: jit(lambda s, y: (s * s, y))(f(x), x)[0],
    "scan": in_scan,
    "fori_loop": lambda f: lambda x: fori_loop(0, 3, lambda i, c: c + i * f(x), np.float64(1.0)),
    "carried": lambda f: (
        lambda x: fori_loop(0, 3, lambda i, c: (f(c[1]), c[1]), (np.float64(1.0), x))[0]
    ),
    "map": lambda f: lambda x: loops.map(lambda k: f(x * k), np.arange(3.0)).sum(),
    "cond": lambda f: lambda x: cond(f(x) > 0, f, lambda y: f(y) * 2.0, x),
    "switch": lambda f: lambda x: switch(1, [f, lambda y: f(y) * 2.0], x),
    "while": in_while,
    "writes": written,
    "writes in a branch": written_in_branch,
    "sums in a branch": added_in_branch,
    "writes in a loop": written_in_loop,
    "rules in a rule": lambda f: by_jvp(jit(lambda x: f(x) * 2.0)),
    "many": nested,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_what_the_lanes_share_needs_no_axis(construct: str, kind: str) -> None:
    """Its value and its derivative are those of the same program on the whole array."""
    within = CONSTRUCTS[construct]

    def both(f: Function, x: Any) -> Any:
        """The value and the derivative of a function."""
        if construct == "while":
            return jvp(f, (x,), (WEIGHTS,))
        return f(x), grad(f)(x)

    def of_lanes_and_of_all(x: Any) -> Any:
        return [
            (
                both(vmap(within(KINDS[kind](of_lane)), out_axes=None, axis_name="i"), x),
                both(within(of_all), x),
            )
            for of_lane, of_all in COLLECTIVES.values()
        ]

    results = iter(sample(of_lanes_and_of_all, X).run())
    for value, slope, want, wanted in zip(results, results, results, results, strict=True):
        assert_close(value, want)
        assert_close(slope, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_what_lanes_have_of_their_own_keeps_its_axis(construct: str, kind: str) -> None:
    own: list[Function] = [
        lambda x: psum(x, "i") * x,
        lambda x: psum(x, "i") + axis_index("i"),
        lambda x: psum(x, "i", axis_index_groups=[[0], [1, 2]]),
        lambda x: all_gather(x, "i")[axis_index("i")],
    ]
    for f in own:
        with pytest.raises(ValueError, match="out_axes is None for a result that depends"):
            vmap(CONSTRUCTS[construct](KINDS[kind](f)), out_axes=None, axis_name="i")(X)


def written_where_positive(x: Any) -> Any:
    r = new_ref(np.float64(0.0))
    cond(x > 0, lambda: r.addupdate(1.0), lambda: None)
    return r[...]


# Nothing that differs is in the values; which of them a lane gets does.
CHOICES: dict[str, Function] = {
    "branch": lambda x: cond(x > 0, lambda: 1.0, lambda: 0.0),
    "number of steps": lambda x: while_loop(
        lambda c: c[0] < x, lambda c: (c[0] + 1, 1.0), (0.0, 0.0)
    )[1],
    "no step": lambda x: fori_loop(0, 0, lambda i, c: np.float64(1.0), x),
    "no step of a while": lambda x: while_loop(lambda c: False, lambda c: np.float64(1.0), x),
    "write": written_where_positive,
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_lanes_choose_for_themselves_keeps_its_axis(name: str) -> None:
    chosen = jit(lambda x: CHOICES[name](x) + psum(x, "i"))
    want = np.array([CHOICES[name](x) for x in X]) + X.sum()
    assert_close(vmap(chosen, axis_name="i")(X), want)
    with pytest.raises(ValueError, match="out_axes is None for a result that depends"):
        vmap(chosen, out_axes=None, axis_name="i")(X)


def shared_but_for_its_rule(x: Any) -> Any:
    """The function gives lanes the same, its rule gives each its own number."""
    f = custom_vmap(lambda x, total: total * 1.0)
    f.def_vmap(lambda size, batched, x, total: (x + total, True))
    return f(x, psum(x, "i"))


@pytest.mark.parametrize("wrap", [lambda f: f, jit, checkpoint, in_scan], ids=lambda w: w.__name__)
def test_a_rule_for_the_batch_says_what_lanes_share(wrap: Function) -> None:
    with pytest.raises(ValueError, match="out_axes is None for a result that depends"):
        vmap(wrap(shared_but_for_its_rule), out_axes=None, axis_name="i")(X)


def test_random_numbers_of_lanes_are_their_own() -> None:
    stream = KeyStream(3)

    def fun(x: Any) -> Any:
        start: Any = np.float32(0.0)
        last = scan(lambda c, _: (random.uniform(stream.key()), None), start, length=2)[0]
        return last + psum(x, "i")

    assert len(set(np.asarray(vmap(fun, axis_name="i")(X)).tolist())) == 3
    with pytest.raises(ValueError, match="out_axes is None for a result that depends"):
        vmap(fun, out_axes=None, axis_name="i")(X)


def test_a_loop_in_a_call_ends_where_each_lane_says() -> None:
    """What a lane has written when it is done is its own, though it writes what all lanes share."""

    def fun(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            def step(k: Any) -> Any:
                r[0] = psum(x, "i")
                return k + 1.0

            while_loop(lambda k: k < x, step, i * 1.0)

        return for_loop(1, body, np.zeros(1))[0]

    want = np.where(X > 0, X.sum(), 0.0)
    assert_close(vmap(jit(fun), axis_name="i")(X), want)
    with pytest.raises(ValueError, match="out_axes is None for a result that depends"):
        vmap(jit(fun), out_axes=None, axis_name="i")(X)

"""A stream of keys in every transform: the keys that are counted, each once, and the same in every replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop import random
from fiveloop.core import (
    closed_call,
    custom_vjp,
    disable_jit,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    make_jaxpr,
    vmap,
)
from fiveloop.core.extend import typecheck
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.remat.policies import everything_saveable
from fiveloop.state import discharge_state, freeze, new_ref
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.misuse import raised
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops import references as _references  # noqa: F401
from fiveloop.testing.state.laws import discharged

KEY = random.key(7)


def numbered(*counts: int) -> list[list[int]]:
    """The keys of those numbers."""
    return [np.asarray(random.fold_in(KEY, k)).tolist() for k in counts]


def shared(count: int, lanes: int) -> Any:
    """What each lane gets of a key that lanes share."""
    return np.asarray(random.split(random.fold_in(KEY, count), lanes))


def given(stream: Any) -> int:
    """How many keys a stream has given."""
    return int(stream.state[2])


def drawn(stream: Any, steps: int) -> Any:
    """The keys that the steps of a loop take."""

    def body(i: Any, keys: Any) -> None:
        keys[i] = stream.key()

    return for_loop(steps, body, fnp.zeros((steps, 2), np.uint32))


def test_keys_are_counted() -> None:
    stream = random.KeyStream(7)
    assert [stream.key().tolist() for _ in range(3)] == numbered(0, 1, 2)
    assert stream.keys(2).tolist() == random.split(random.fold_in(KEY, 3), 2).tolist()
    assert repr(stream) == "KeyStream(Ref([0 7 4], dtype=uint32))"
    again = random.KeyStream(KEY)
    assert jit(lambda: again.key())().tolist() == numbered(0)[0]
    assert jit(lambda s: s.key())(again).tolist() == numbered(1)[0]
    with disable_jit():
        assert jit(lambda s: s.key())(again).tolist() == numbered(2)[0]
    assert jit(lambda: drawn(random.KeyStream(KEY), 3))().tolist() == numbered(0, 1, 2)


LOOPS: dict[str, Callable[[Any], Any]] = {
    "for": lambda s: drawn(s, 4),
    "scan": lambda s: scan(lambda c, _: (c, s.key()), 0, None, length=4)[1],
    "call": lambda s: scan(lambda c, _: (c, closed_call(s.key)()), 0, None, length=4)[1],
    "nested": lambda s: scan(lambda c, _: (c, drawn(s, 2)), 0, None, length=2)[1].reshape(4, 2),
    "checkpoint": lambda s: checkpoint(lambda: drawn(s, 4))(),
    "branches": lambda s: scan(
        lambda c, i: (c, cond(i % 2 == 0, s.key, lambda: drawn(s, 1)[0])), 0, fnp.arange(4)
    )[1],
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    f = LOOPS[name]
    for run in (f, jit(f), checkpoint(f), jit(checkpoint(f))):
        stream = random.KeyStream(KEY)
        assert run(stream).tolist() == numbered(0, 1, 2, 3)
        assert given(stream) == 4
    jaxpr = make_jaxpr(f)(random.KeyStream(KEY))
    typecheck(jaxpr)
    typecheck(discharge_state(jaxpr))
    assert not discharge_state(jaxpr).effects


def each_lane(f: Callable[[Any], Any], stream: Any) -> Any:
    """What three lanes get of a stream that they share."""

    def lane(x: Any) -> Any:
        return f(stream)

    return vmap(lane)(np.arange(3))


@pytest.mark.parametrize("name", LOOPS)
def test_lanes_that_share_a_stream(name: str) -> None:
    f = LOOPS[name]
    for wrap in (closed_call, jit):
        stream = random.KeyStream(KEY)
        out = np.asarray(wrap(partial(each_lane, f, stream))())
        for k in range(4):
            np.testing.assert_array_equal(out[:, k], shared(k, 3))
        assert given(stream) == 4


@pytest.mark.parametrize("name", LOOPS)
def test_lanes_with_streams_of_their_own(name: str) -> None:
    f = LOOPS[name]
    streams = random.KeyStream(KEY).fork(3)
    out = np.asarray(jit(vmap(f))(streams))
    for lane, key in enumerate(random.split(random.fold_in(KEY, 0), 3)):
        np.testing.assert_array_equal(out[lane], np.asarray(f(random.KeyStream(key))))
    assert streams.state[:, 2].tolist() == [4, 4, 4]


def test_lanes_that_choose() -> None:
    def chosen(flag: Any, stream: Any) -> Any:
        return cond(flag, stream.key, lambda: fnp.zeros(2, np.uint32))

    def steps(n: Any, stream: Any) -> Any:
        return while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, stream.key()), (0, KEY))[1]

    flags, counts = np.array([True, False, True]), np.array([1, 3, 0])
    streams = random.KeyStream(KEY).fork(3)
    jit(vmap(chosen))(flags, streams)
    assert streams.state[:, 2].tolist() == [1, 0, 1]
    last = jit(vmap(steps))(counts, streams)
    assert streams.state[:, 2].tolist() == [2, 3, 1]
    want = random.fold_in(random.split(random.fold_in(KEY, 0), 3)[1], 2)
    assert last[1].tolist() == want.tolist()

    stream = random.KeyStream(KEY)
    out = jit(vmap(lambda flag: chosen(flag, stream)))(flags)
    np.testing.assert_array_equal(np.asarray(out)[[0, 2]], shared(0, 3)[[0, 2]])
    assert given(stream) == 1
    last = jit(vmap(lambda n: steps(n, stream)))(counts)
    np.testing.assert_array_equal(np.asarray(last)[1], shared(3, 3)[1])
    assert given(stream) == 4


def noisy(x: Any, stream: Any) -> Any:
    """Five steps with noise between, whose derivative needs the noise again."""

    def body(i: Any, r: Any) -> None:
        r[...] = fnp.sin(r[...] * random.normal(stream.key())) + r[...]

    return for_loop(5, body, x)


def by_hand(x: Any) -> Any:
    """The same with keys that are passed on."""
    for k in range(5):
        x = fnp.sin(x * random.normal(random.fold_in(KEY, k))) + x
    return x


def test_replays_have_the_same_bits() -> None:
    """The stream is the user's, or made inside; the checkpoint holds the loop, or the loop holds checkpoints."""

    def steps(x: Any, stream: Any) -> Any:
        @checkpoint
        def step(c: Any) -> Any:
            return fnp.sin(c * random.normal(stream.key())) + c

        return scan(lambda c, _: (step(c), None), x, None, length=5)[0]

    programs: list[Callable[..., Any]] = [
        noisy,
        checkpoint(noisy),
        checkpoint(noisy, policy=everything_saveable),
        steps,
        checkpoint(steps),
        lambda x, s: checkpoint(lambda x: noisy(x, s))(x),
        lambda x, s: (noisy(x, random.KeyStream(KEY)), drawn(s, 5))[0],
        lambda x, s: (checkpoint(lambda x: noisy(x, random.KeyStream(KEY)))(x), drawn(s, 5))[0],
    ]
    want = float(jit(grad(by_hand))(0.5))
    for f in programs:
        for run in (grad(f), jit(grad(f))):
            stream = random.KeyStream(KEY)
            np.testing.assert_allclose(float(run(np.float32(0.5), stream)), want, rtol=1e-5)
            assert given(stream) == 5
    want = float(jit(hessian(by_hand))(0.5))
    for f in (programs[1], programs[3], programs[-1]):
        stream = random.KeyStream(KEY)
        np.testing.assert_allclose(float(jit(hessian(f))(0.5, stream)), want, rtol=1e-4)
        assert given(stream) == 5


def test_directions_of_a_derivative_are_no_lanes() -> None:
    def f(x: Any, stream: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[...] = r[...] * random.normal(stream.key(), (3,)) + x

        return for_loop(2, body, x) * random.normal(stream.key(), (3,))

    x = np.ones(3, np.float32)
    want = jacrev(f)(x, random.KeyStream(KEY))
    for of in (jacfwd(f), jit(jacfwd(f)), jacfwd(checkpoint(f)), jit(jacrev(f))):
        stream = random.KeyStream(KEY)
        np.testing.assert_allclose(np.asarray(of(x, stream)), np.asarray(want), rtol=1e-5)
        assert given(stream) == 3


def test_keys_of_a_replay_are_those_that_were_given() -> None:
    """The forward pass notes its keys, and so does the derivative's use of them; all bits agree."""

    @custom_vjp
    def witness(x: Any, key: Any) -> Any:
        return x

    seen = new_ref(np.zeros((2, 4, 2), np.uint32))

    def forward(x: Any, key: Any) -> Any:
        return x, key

    def backward(key: Any, ct: Any) -> Any:
        return ct * key[0].astype(np.float32), None

    witness.defvjp(forward, backward)

    @jit
    def slope(x: Any, stream: Any) -> Any:
        @checkpoint
        def body(c: Any, i: Any) -> Any:
            key = stream.key()
            seen[0, i] = key
            return witness(c, key)

        return grad(lambda x: scan(lambda c, i: (body(c, i), None), x, fnp.arange(4))[0])(x)

    got = slope(1.0, random.KeyStream(KEY))
    np.testing.assert_array_equal(np.asarray(seen[0]), numbered(0, 1, 2, 3))
    product = np.prod(np.array(numbered(0, 1, 2, 3))[:, 0].astype(np.float32))
    np.testing.assert_allclose(float(got), product, rtol=1e-6)


def test_the_oracle_agrees() -> None:
    def f(x: Any) -> Any:
        stream = random.KeyStream(KEY)
        ref = new_ref(x)
        for_loop(3, lambda i, _: ref.__setitem__(i, random.uniform(stream.key()) + x[i]), 0.0)
        return freeze(ref), stream.key()

    s = sample(f, np.arange(3, dtype=np.float32))
    assert_all_close(s.run(), jit(f)(np.arange(3, dtype=np.float32)), "oracle")
    assert_all_close(discharged(s).run(), s.run(), "discharged")
    out, dot = jvp(f, (np.ones(3, np.float32),), (np.ones(3, np.float32),))
    np.testing.assert_array_equal(np.asarray(dot[0]), np.ones(3))
    assert eval_shape(f, np.ones(3, np.float32))[1].shape == out[1].shape == (2,)


def test_misuse() -> None:
    with pytest.raises(
        TypeError, match=r"KeyStream: expected a key, an array of two uint32 words, got f32\[3\]"
    ):
        random.KeyStream(np.ones(3, np.float32))
    with pytest.raises(TypeError, match="key: expected `seed` to be an integer, got"):
        random.KeyStream(1.5)
    stream = random.KeyStream(KEY)

    def draw(stream: Any, x: Any = 0.0) -> Any:
        return random.normal(stream.key()) + x

    for misuse, message in (
        (
            lambda: vmap(draw)(stream),
            "KeyStream: expected one stream to take a key from, got a part of one, of type Ref{u32[]}; under `vmap` "
            "give each lane a stream of its own, `stream.fork(size)` with in_axes=0, or let the lanes share one, with "
            "in_axes=None or closed over",
        ),
        (
            lambda: draw(stream.fork(3)),
            "KeyStream: expected one stream to take a key from, got 3 streams that `fork` has made; pass them to "
            "`vmap`, with in_axes=0, so that each lane has one",
        ),
        (
            lambda: vmap(draw)(stream.fork(2), np.zeros(3)),
            "vmap of draw: expected batches of one size, got: argument `stream`.state has 2, argument `x` has 3",
        ),
        (
            lambda: jit(draw)(stream, stream),
            "jit of draw: argument `stream`.state and argument `x`.state are one Ref{u32[3]}",
        ),
    ):
        error = raised(misuse)
        assert type(error) in (TypeError, ValueError) and str(error).startswith(message)
        assert str(error).split("\n")[1].startswith(f"  at {__file__}")


# carried


def closed_over(stream: Any) -> Any:
    """Three draws of a stream that a loop closes over."""
    return scan(lambda c, _: (c, random.normal(stream.key())), 0.0, None, length=3)[1]


def carried(stream: Any) -> Any:
    """The same of a stream that it carries."""
    return scan(lambda s, _: (s, random.normal(s.key())), stream, None, length=3)[1]


def held(stream: Any) -> Any:
    """The same of a stream among a loop's states."""

    def body(i: Any, refs: Any) -> None:
        refs[0][i] = random.normal(refs[1].key())

    return for_loop(3, body, (fnp.zeros(3), stream))[0]


def asked_while(stream: Any) -> Any:
    """The same of a stream that a `while` carries."""

    def step(state: Any) -> Any:
        k, x, s = state
        return k + 1, x.at[k].set(random.normal(s.key())), s

    return while_loop(lambda state: state[0] < 3, step, (0, fnp.zeros(3), stream))[1]


def test_streams_that_loops_carry() -> None:
    ways: list[Callable[..., Any]] = [
        jit,
        lambda f: jit(checkpoint(f)),
        lambda f: lambda stream: jit(vmap(f))(stream.fork(2)),
        lambda f: jit(vmap(f, in_axes=None, axis_size=2)),
    ]
    for way in ways:
        first = random.KeyStream(KEY)
        want = np.asarray(way(closed_over)(first))
        for f in (carried, held, asked_while):
            stream = random.KeyStream(KEY)
            np.testing.assert_array_equal(np.asarray(way(f)(stream)), want)
            assert given(stream) == given(first)

"""`callback` and its kin: what a function is given, what it may give, and how often it is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    ShapeDtype,
    custom_jvp,
    custom_vjp,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from fiveloop.core.extend import as_value
from fiveloop.core.primitives.special import cos, sin
from fiveloop.state import callback, debug_callback, freeze, new_ref, pure_callback
from fiveloop.testing.core.compare import assert_all_close

FLOAT = ShapeDtype((), "float32")
X = np.float32(0.5)


def plain(fun: Any) -> Any:
    """The function itself: it runs operation by operation."""
    return fun


WAYS = [pytest.param(plain, id="eager"), pytest.param(jit, id="jit")]
either_way = pytest.mark.parametrize("way", WAYS)


class Calls:
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, *args: Any) -> np.float32:
        self.seen.append(args[0] if len(args) == 1 else args)
        return np.float32(2.0)


@either_way
def test_structures_names_and_constants_reach_the_function(way: Any) -> None:
    calls: list[Any] = []

    def fun(tree: Any, name: str, *, scale: Any) -> Any:
        calls.append((tree, name, scale))
        return {"sum": tree["a"] + tree["b"][0], "twice": 2 * tree["a"]}

    spec = {"sum": FLOAT, "twice": FLOAT}
    out = way(lambda a, b: callback(fun, spec, {"a": a, "b": [b]}, "x", scale=3))(X, X + 1)
    assert (float(out["sum"]), float(out["twice"])) == (2.0, 1.0)
    ((tree, name, scale),) = calls
    assert (float(tree["a"]), float(tree["b"][0]), name, scale) == (0.5, 1.5, "x", 3)
    assert type(tree["a"]) is np.ndarray
    assert tree["a"].dtype == np.float32


@either_way
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint32", "int64", "float16", "bfloat16", "float64", "complex64"]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3)])
def test_arrays_of_every_kind_come_and_go(way: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    given = as_value(x).astype(dtype)
    out = way(lambda x: callback(lambda y: y, ShapeDtype(shape, given.dtype), x))(given)
    assert out.dtype == given.dtype
    assert np.array_equal(np.asarray(out), np.asarray(given))


def test_a_transposed_array_keeps_its_elements() -> None:
    x = np.arange(6.0, dtype="float32").reshape(2, 3)
    spec = ShapeDtype((3, 2), "float32")
    out = jit(lambda x: callback(lambda y: y + 1, spec, x.T) @ x)(x)
    assert np.array_equal(np.asarray(out), (x.T + 1) @ x)


@either_way
def test_what_a_function_keeps_stays_as_it_was(way: Any) -> None:
    calls = Calls()
    fun = way(lambda x: debug_callback(calls, x))
    for k in range(20):
        fun(np.full(1000, k, "float32"))
    assert [float(x.sum()) for x in calls.seen] == [1000.0 * k for k in range(20)]
    calls.seen[0][0] = 7.0  # it is the function's own


@either_way
def test_no_arrays_and_no_results(way: Any) -> None:
    calls = Calls()
    assert way(lambda: callback(lambda: calls("none") and None, None))() is None
    assert way(lambda: callback(lambda: calls("one"), FLOAT))() == 2.0
    assert calls.seen == ["none", "one"]


def test_each_call_of_a_jitted_function_makes_it() -> None:
    calls = Calls()
    fun = jit(lambda x: (debug_callback(calls, x), x * 2)[1])
    for k in range(5):
        fun(np.float32(k))
    assert [float(x) for x in calls.seen] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_unused_results_of_callback_do_not_drop_it() -> None:
    calls, pure = Calls(), Calls()

    def fun(x: Any) -> Any:
        callback(calls, FLOAT, x)
        pure_callback(pure, FLOAT, x)
        return x

    jit(fun)(X)
    assert (len(calls.seen), len(pure.seen)) == (1, 0)


def talking(calls: Calls) -> Any:
    """A function that calls Python in both ways."""

    def fun(x: Any) -> Any:
        debug_callback(calls, x)
        return sin(x) * callback(calls, FLOAT, stop_gradient(x))

    return fun


TRANSFORMS: dict[str, Any] = {
    "call": lambda f: f(X),
    "grad": lambda f: grad(f)(X),
    "value_and_grad": lambda f: value_and_grad(f)(X),
    "grad of grad": lambda f: grad(grad(f))(X),
    "jvp": lambda f: jvp(f, (X,), (X,)),
    "jvp of grad": lambda f: jvp(grad(f), (X,), (X,)),
    "vjp": lambda f: vjp(f, X)[1](X),
    "linearize": lambda f: linearize(f, X)[1](X),
    "jacfwd": lambda f: jacfwd(lambda v: f(v[0]) * v)(np.ones(3, "float32")),
    "jacrev": lambda f: jacrev(lambda v: f(v[0]) * v)(np.ones(3, "float32")),
    "hessian": lambda f: hessian(lambda v: f(v[0]) * v[1])(np.ones(3, "float32")),
}


@either_way
@pytest.mark.parametrize("name", TRANSFORMS)
def test_it_is_called_once(way: Any, name: str) -> None:
    calls = Calls()
    TRANSFORMS[name](way(talking(calls)))
    assert len(calls.seen) == 2
    calls.seen.clear()
    way(lambda: TRANSFORMS[name](talking(calls)))()
    assert len(calls.seen) == 2


def test_a_linear_function_does_not_call_again() -> None:
    calls = Calls()
    _, linear = linearize(jit(talking(calls)), X)
    _, pull = vjp(talking(calls), X)
    calls.seen.clear()
    for _ in range(3):
        linear(X)
        pull(X)
    assert calls.seen == []


@either_way
def test_lanes_in_order(way: Any) -> None:
    calls = Calls()
    xs = np.arange(6.0, dtype="float32").reshape(2, 3)
    fun = vmap(vmap(lambda x: callback(lambda y: calls(float(y)) * y, FLOAT, x)))
    assert_all_close([way(fun)(xs)], [2 * xs])
    assert calls.seen == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@either_way
def test_lanes_of_an_inner_axis(way: Any) -> None:
    calls = Calls()
    xs, y = np.arange(6.0, dtype="float32").reshape(2, 3), np.float32(10)
    fun = vmap(lambda x, y: callback(lambda a, b: calls(list(a)) * b, FLOAT, x, y), (1, None))
    assert_all_close([way(fun)(xs, y)], [np.full(3, 20.0, "float32")])
    assert calls.seen == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


@either_way
def test_stacked_lanes_are_one_call(way: Any) -> None:
    shapes: list[Any] = []

    def double(x: Any, y: Any) -> Any:
        shapes.append((x.shape, y.shape))
        return x * y

    xs = np.arange(6.0, dtype="float32").reshape(2, 3)
    inner = lambda x: callback(double, FLOAT, x, np.float32(2), vmap="stacked")
    assert_all_close([way(vmap(vmap(inner)))(xs)], [2 * xs])
    assert shapes == [((2, 3), (2, 3))]


@either_way
def test_what_lanes_share_is_called_for_each(way: Any) -> None:
    calls = Calls()
    fun = vmap(lambda x, y: x * callback(calls, FLOAT, y), (0, None))
    assert_all_close([way(fun)(np.ones(4, "float32"), X)], [np.full(4, 2.0, "float32")])
    assert len(calls.seen) == 4


@either_way
def test_results_without_arguments_are_those_of_each_lane(way: Any) -> None:
    numbers = iter(np.arange(20, dtype="float32"))
    fun = vmap(lambda x: x + callback(lambda: next(numbers), FLOAT))
    assert_all_close([way(fun)(np.zeros(3, "float32"))], [np.arange(3, dtype="float32")])


def test_no_lanes() -> None:
    calls = Calls()
    fun = vmap(lambda x: callback(calls, FLOAT, x))
    assert jit(fun)(np.zeros((0,), "float32")).shape == (0,)
    assert calls.seen == []


def test_gradients_of_lanes_and_lanes_of_gradients() -> None:
    calls = Calls()
    xs = np.arange(3.0, dtype="float32")
    vmap(grad(talking(calls)))(xs)
    assert len(calls.seen) == 6
    grad(lambda xs: vmap(talking(calls))(xs).sum())(xs)
    assert len(calls.seen) == 12


def test_custom_rules_give_derivatives() -> None:
    @custom_jvp
    def sine(x: Any) -> Any:
        return pure_callback(np.sin, ShapeDtype(x.shape, x.dtype), x)

    sine.defjvp(lambda primals, dots: (sine(primals[0]), dots[0] * cos(primals[0])))
    assert_all_close([grad(sine)(X), jit(grad(sine))(X)], [np.cos(X)] * 2)
    assert_all_close([vmap(grad(sine))(np.stack([X, X]))], [np.cos(np.stack([X, X]))])


def test_a_rule_of_ones_own_calls_when_it_runs() -> None:
    calls = Calls()

    @custom_vjp
    def f(x: Any) -> Any:
        debug_callback(lambda: calls("f"))
        return x * 2

    def forward(x: Any) -> Any:
        debug_callback(lambda: calls("forward"))
        return x * 2, ()

    def backward(res: Any, ct: Any) -> Any:
        debug_callback(lambda: calls("backward"))
        return (ct * 2,)

    f.defvjp(forward, backward)
    f(X)
    jit(f)(X)
    assert calls.seen == ["f", "f"]
    calls.seen.clear()
    grad(f)(X)
    jit(grad(f))(X)
    assert calls.seen == ["forward", "backward"] * 2


def test_a_function_may_use_the_library() -> None:
    def inner(x: Any) -> Any:
        return jit(lambda y: (y @ y.T).sum())(np.ones((8, 8), "float32") * x)

    def outer(x: Any) -> Any:
        return jit(lambda y: callback(inner, FLOAT, y))(x)

    def square(x: Any) -> Any:
        return x * x

    assert float(jit(lambda x: callback(outer, FLOAT, x))(np.float32(2))) == 8.0**3 * 4
    assert float(jit(lambda x: callback(grad(square), FLOAT, x))(X)) == 1.0


def test_equal_calls_share_a_program_and_others_do_not() -> None:
    calls = Calls()
    for name, number in [("a", 1), ("a", 1.0), ("b", True)]:
        jit(lambda x, k=number, n=name: debug_callback(lambda y, n, k: calls((n, k)), x, n, k))(X)
    assert [repr(x) for x in calls.seen] == ["('a', 1)", "('a', 1.0)", "('b', True)"]


def test_it_prints() -> None:
    def half(x: Any) -> Any:
        return x / 2

    jaxpr = make_jaxpr(lambda x: callback(half, FLOAT, x, ordered=True))(X)
    assert str(jaxpr) == (
        "{ lambda a:f32[] ; OrderedIO ; let\n"
        "    b:f32[] = callback[call=half avals=(f32[],) kind=ordered] a ! OrderedIO\n"
        "  in (b,) }"
    )


def test_a_ref_can_be_read_for_it() -> None:
    calls = Calls()

    @jit
    def fun(x: Any) -> Any:
        ref = new_ref(x)
        debug_callback(calls, ref[0])
        ref[0] = callback(calls, FLOAT, ref[1])
        return freeze(ref)

    assert_all_close([fun(np.array([3.0, 4.0], "float32"))], [np.array([2.0, 4.0], "float32")])
    assert sorted(float(x) for x in calls.seen) == [3.0, 4.0]


@pytest.mark.parametrize("ask", [callback, pure_callback])
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_call_may_call_its_own_jitted_function(ask: Any, size: int) -> None:
    depths: list[int] = []

    def again(x: Any) -> Any:
        depths.append(len(depths))
        return np.asarray(f(x)) if len(depths) < 3 else x

    @jit
    def f(x: Any) -> Any:
        return ask(again, ShapeDtype((size,), "float32"), x) + 1.0

    x = np.zeros(size, np.float32)
    assert f(x)[0].item() == 3.0
    assert f(x)[0].item() == 1.0
    assert depths == [0, 1, 2, 3]

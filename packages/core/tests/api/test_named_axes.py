"""Named axes as users meet them: `vmap(..., axis_name=...)` and collectives, against NumPy and against each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    Array,
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    closed_call,
    grad,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
    vjp,
    vmap,
)
from fiveloop.core.ir.axes import NamedAxis
from fiveloop.testing.core.compare import assert_all_close, assert_close
from fiveloop.testing.core.golden import assert_prints
from fiveloop.testing.core.lanes import lanes
from fiveloop.testing.core.oracle import run_jaxpr

HostArray = np.ndarray[Any, Any]
Function = Callable[..., Any]
HALVES = [[0, 2], [3, 1]]
X = np.arange(12.0).reshape(4, 3) ** 2 - 7.0
SQUARE = np.arange(16.0).reshape(4, 4) ** 1.5
I4: tuple[tuple[Hashable, int], ...] = (("i", 4),)
I2J2: tuple[tuple[Hashable, int], ...] = (("i", 2), ("j", 2))
IJ = ("i", "j")


def over(fun: Function, axes: Any) -> Function:
    """A function of one lane, mapped over named axes in front of its arguments."""
    for name, _ in reversed(axes):
        fun = vmap(fun, axis_name=name)
    return fun


# against NumPy

NUMPY: dict[str, tuple[Function, HostArray, Any]] = {
    "psum": (lambda x: psum(x, "i"), X, np.stack([X.sum(0)] * 4)),
    "pmean": (lambda x: pmean(x, "i"), X, np.stack([X.mean(0)] * 4)),
    "pmax": (lambda x: pmax(x, "i"), X, np.stack([X.max(0)] * 4)),
    "pmin": (lambda x: pmin(x, "i"), X, np.stack([X.min(0)] * 4)),
    "psum groups": (
        lambda x: psum(x, "i", axis_index_groups=HALVES),
        X,
        np.stack([X[0] + X[2], X[3] + X[1], X[0] + X[2], X[3] + X[1]]),
    ),
    "pmax unequal groups": (
        lambda x: pmax(x, "i", axis_index_groups=[[1], [0, 2, 3]]),
        X,
        np.stack([X[[0, 2, 3]].max(0), X[1], *[X[[0, 2, 3]].max(0)] * 2]),
    ),
    "all_gather": (lambda x: all_gather(x, "i"), X, np.stack([X] * 4)),
    "all_gather axis": (lambda x: all_gather(x, "i", axis=1), X, np.stack([X.T] * 4)),
    "all_gather tiled": (
        lambda x: all_gather(x, "i", tiled=True),
        X,
        np.stack([X.reshape(-1)] * 4),
    ),
    "all_gather groups": (
        lambda x: all_gather(x, "i", axis_index_groups=HALVES),
        X,
        np.stack([X[[0, 2]], X[[3, 1]], X[[0, 2]], X[[3, 1]]]),
    ),
    "psum_scatter": (lambda x: psum_scatter(x, "i"), SQUARE, SQUARE.sum(0)),
    "psum_scatter tiled": (
        lambda x: psum_scatter(x, "i", tiled=True),
        np.tile(SQUARE, 2),
        np.tile(SQUARE, 2).sum(0).reshape(4, 2),
    ),
    "psum_scatter groups": (
        lambda x: psum_scatter(x, "i", axis_index_groups=HALVES),
        X[:, :2],
        np.array([X[0, 0] + X[2, 0], X[3, 1] + X[1, 1], X[0, 1] + X[2, 1], X[3, 0] + X[1, 0]]),
    ),
    "all_to_all": (lambda x: all_to_all(x, "i", 0, 0), SQUARE, SQUARE.T),
    "all_to_all tiled": (
        lambda x: all_to_all(x, "i", 0, 0, tiled=True),
        np.tile(SQUARE, 2),
        np.tile(SQUARE, 2).reshape(4, 4, 2).transpose(1, 0, 2).reshape(4, 8),
    ),
    "all_to_all groups": (
        lambda x: all_to_all(x, "i", 0, 0, axis_index_groups=HALVES),
        X[:, :2],
        np.stack([X[[0, 2], 0], X[[3, 1], 1], X[[0, 2], 1], X[[3, 1], 0]]),
    ),
    "pswapaxes": (lambda x: pswapaxes(x, "i", 0), SQUARE, SQUARE.T),
    "ppermute": (
        lambda x: ppermute(x, "i", [(0, 3), (2, 1)]),
        X,
        np.stack([0 * X[0], X[2], 0 * X[0], X[0]]),
    ),
    "pshuffle": (lambda x: pshuffle(x, "i", [2, 0, 3, 1]), X, X[[2, 0, 3, 1]]),
    "axis_index": (lambda x: x * axis_index("i"), X, X * np.arange(4)[:, None]),
}


@pytest.mark.parametrize("name", NUMPY)
def test_against_numpy(name: str) -> None:
    fun, x, want = NUMPY[name]
    assert_close(vmap(fun, axis_name="i")(x), want)
    assert_close(jit(vmap(fun, axis_name="i"))(x), want)


def test_in_axes_and_out_axes_go_with_names() -> None:
    fun = vmap(lambda x, y: (psum(x, "i"), x + y), (1, None), (None, 1), axis_name="i")
    total, moved = fun(X, 2.0)
    assert_close(total, X.sum(1))
    assert_close(moved, X + 2.0)


def test_pytrees_and_python_numbers() -> None:
    def fun(x: Any) -> Any:
        tree = {"a": x, "b": (2 * x, 3)}
        assert psum(3, "i") == 12 and type(psum(3, "i")) is int
        assert psum(0.5, "i") == 2.0 and type(psum(0.5, "i")) is float
        assert psum(1, "i", axis_index_groups=HALVES) == 2
        assert psum(1, ()) == 1 and axis_size(()) == 1
        assert axis_size("i") == 4 and axis_size(["i"]) == 4
        assert pmean(3, "i") == 3.0
        return psum(tree, "i")

    out = vmap(fun, axis_name="i")(X)
    assert_close(out["b"][0], np.stack([2 * X.sum(0)] * 4))
    assert_close(out["b"][1], np.full(4, 12, np.int32))


def test_what_lanes_share_is_not_repeated() -> None:
    def fun(x: Any) -> Any:
        return psum(x, "i"), pmax(x, "i"), all_gather(x, "i"), psum(np.float64(2.0), "i")

    total, most, everything, eight = vmap(fun, out_axes=None, axis_name="i")(X)
    assert_close(total, X.sum(0))
    assert_close(most, X.max(0))
    assert_close(everything, X)
    assert_close(eight, np.float64(8.0))


def test_bools_are_counted() -> None:
    assert_close(vmap(lambda x: psum(x > 0, "i"), axis_name="i")(X)[0], (X > 0).sum(0, np.int32))


def test_integers_and_half_precision_keep_their_dtype() -> None:
    for dtype in (np.int8, np.uint16, np.float16, np.complex64):
        x = np.arange(4).astype(dtype)
        assert_close(vmap(lambda a: psum(a, "i"), axis_name="i")(x), np.full(4, 6, dtype))


def test_means_of_integers_and_bools_are_floating() -> None:
    for x in (np.array([1, 2, 4, 8], np.int32), np.array([True, False, True, True])):
        got = vmap(lambda a: pmean(a, "i"), axis_name="i")(x)
        assert_close(got, np.full(4, x.mean(), np.float32))
    assert_close(
        vmap(lambda a: pmean(a, "i", axis_index_groups=[[0], [1, 2, 3]]), axis_name="i")(X[:, 0]),
        np.array([X[0, 0], *[X[1:, 0].mean()] * 3]),
    )


def test_names_may_be_any_hashable_but_numbers() -> None:
    name = ("data", "rows")
    with pytest.raises(TypeError, match="axis_name must be one name, such as 'i', got"):
        vmap(lambda x: x, axis_name=name)(X)
    key = frozenset(name)
    assert_close(vmap(lambda x: psum(x, key), axis_name=key)(X)[0], X.sum(0))


# in every transform, against the oracle, whose lanes are programs that talk to each other

CASES: dict[str, tuple[Function, tuple[int, ...], Any]] = {
    "psum": (lambda x: psum(x * x, "i"), (3,), I4),
    "psum several": (lambda x: psum(x * x, IJ), (2,), I2J2),
    "psum groups": (lambda x: psum(x * x, "i", axis_index_groups=HALVES), (2,), I4),
    "psum several groups": (lambda x: psum(x * x, IJ, axis_index_groups=HALVES), (2,), I2J2),
    "pmean": (lambda x: x - pmean(x * x, "j"), (2,), I2J2),
    "pmax": (lambda x: x * pmax(x, "i"), (3,), I4),
    "pmin several": (lambda x: x * pmin(x, IJ), (3,), I2J2),
    "all_gather": (lambda x: x * all_gather(x, "i"), (3,), I4),
    "all_gather several tiled": (lambda x: x[0] * all_gather(x, IJ, tiled=True), (3,), I2J2),
    "all_gather groups": (
        lambda x: x * all_gather(x, "i", axis_index_groups=HALVES),
        (3,),
        I4,
    ),
    "psum_scatter": (lambda x: psum_scatter(x * x, "i") * x[0], (4,), I4),
    "psum_scatter tiled": (lambda x: psum_scatter(x * x, "i", tiled=True) * x[0], (8,), I4),
    "psum_scatter several": (lambda x: psum_scatter(x * x, IJ) * x[0], (4,), I2J2),
    "all_to_all": (lambda x: all_to_all(x * x, "i", 1, 0) * x.T, (2, 4), I4),
    "all_to_all tiled": (lambda x: all_to_all(x, "i", 0, 1, tiled=True) ** 2, (4, 2), I4),
    "all_to_all several groups": (
        lambda x: all_to_all(x, IJ, 0, 0, axis_index_groups=HALVES) ** 2,
        (2, 3),
        I2J2,
    ),
    "ppermute": (lambda x: x * ppermute(x, "i", [(0, 3), (2, 0)]), (2,), I4),
    "ppermute several": (lambda x: x * ppermute(x, IJ, [(0, 3), (2, 0)]), (2,), I2J2),
    "axis_index": (lambda x: x * axis_index(IJ) + x * x, (2,), I2J2),
}

WITHIN: dict[str, Callable[[Function], Function]] = {
    "plain": lambda f: f,
    "jit": lambda f: jit(f),
    "closed_call": lambda f: closed_call(f),
    "jvp": lambda f: lambda x: jvp(f, (x,), (2.0 * x,)),
    "grad": lambda f: grad(lambda x: (f(x) ** 2).sum()),
    "jit of grad of jit": lambda f: jit(grad(lambda x: (jit(f)(x) ** 2).sum())),
    "linearize": lambda f: lambda x: linearize(f, x)[1](x),
    "vjp": lambda f: lambda x: [vjp(f, x)[1](y) for y in [f(x)]],
    "vmap inside": lambda f: vmap(f),
    "jvp of grad": lambda f: lambda x: jvp(grad(lambda y: (f(y) ** 2).sum()), (x,), (x,))[1],
}


def arguments(shape: tuple[int, ...], axes: Any) -> HostArray:
    """Random numbers, with lanes in front."""
    sizes = [size for _, size in axes]
    return np.random.default_rng(3).uniform(-1.0, 1.0, (*sizes, *shape))


def in_lanes(fun: Function, x: HostArray, axes: Any) -> list[HostArray]:
    """The results of a function of one lane by the oracle, lanes in front."""
    count = len(axes)
    one = x[(0,) * count]
    jaxpr = make_jaxpr(fun, axis_env=axes)(one)
    with lanes(*[NamedAxis(*axis) for axis in axes]):
        outs = run_jaxpr(jaxpr, [np.moveaxis(x, range(count), range(x.ndim - count, x.ndim))])
    return [np.moveaxis(y, range(y.ndim - count, y.ndim), range(count)) for y in outs]


@pytest.mark.parametrize("way", WITHIN)
@pytest.mark.parametrize("name", CASES)
def test_within_transforms(name: str, way: str) -> None:
    fun, shape, axes = CASES[name]
    inner = WITHIN[way](fun)
    x = arguments((2, *shape) if way == "vmap inside" else shape, axes)
    got = run_jaxpr(make_jaxpr(over(inner, axes))(x), [x])
    assert_all_close(got, in_lanes(inner, x, axes), f"{way} of {name}", scale=100.0)


@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str) -> None:
    fun, shape, axes = CASES[name]
    x = arguments(shape, axes)
    want = in_lanes(fun, x, axes)[0]
    assert_close(jit(over(fun, axes))(x), want, scale=10.0)
    assert_close(over(jit(fun), axes)(x), want, scale=10.0)


def squares(fun: Function) -> Function:
    """The sum of the squares of a function's results."""
    return lambda a: (fun(a) ** 2).sum()


@pytest.mark.parametrize("name", CASES)
def test_derivatives_outside_are_those_inside(name: str) -> None:
    fun, shape, axes = CASES[name]
    x = arguments(shape, axes)
    outside = grad(squares(over(fun, axes)))(x)
    inside = over(grad(squares(fun)), axes)(x)
    assert_close(outside, inside, scale=100.0)
    _, dots = jvp(over(fun, axes), (x,), (np.cos(x),))
    within = over(lambda a, t: jvp(fun, (a,), (t,))[1], axes)(x, np.cos(x))
    assert_close(dots, within, scale=100.0)


# what names mean


def test_an_inner_axis_hides_an_outer_one_of_its_name() -> None:
    def outer(row: Any) -> Any:
        before = psum(row.sum(), "i")
        return before, vmap(inner, axis_name="i")(row), psum(row.sum(), "i")

    def inner(x: Any) -> Any:
        return psum(x, "i"), axis_size("i")

    before, (total, size), after = vmap(outer, axis_name="i")(X)
    assert_close(before, np.full(4, X.sum()))
    assert_close(after, np.full(4, X.sum()))
    assert_close(total, np.repeat(X.sum(1)[:, None], 3, 1))
    assert_close(size, np.full((4, 3), 3, np.int32))


def test_what_was_traced_outside_is_not_captured_by_an_inner_axis() -> None:
    def outer(x: Any) -> Any:
        y, pull = vjp(lambda a: psum(a * a, "i"), x)
        return vmap(lambda s: s * pull(y)[0] + psum(0.0 * s, "i"), axis_name="i")(np.ones(5))

    x = np.arange(4.0)
    want = np.repeat((4 * (x**2).sum() * 2 * x)[:, None], 5, 1)
    assert_close(vmap(outer, axis_name="i")(x), want)


def test_the_same_jitted_function_under_axes_of_other_sizes() -> None:
    fun = jit(lambda x: x * axis_size("i") + psum(x, "i"))
    for size in (2, 4, 3, 4, 2):
        x = np.arange(float(size))
        assert_close(vmap(fun, axis_name="i")(x), x * size + x.sum())


def test_a_jitted_function_that_asks_for_axes_outside_and_under_vmap() -> None:
    def lanes_here(x: Any) -> Any:
        try:
            return x * axis_size("i")
        except NameError:
            return x * 1

    many = [np.float64(1.0)] * 12
    fun, of_many = jit(lanes_here), jit(lambda xs: [lanes_here(x) for x in xs])
    for _ in range(3):
        assert float(fun(many[0])) == 1.0
        assert float(of_many(many)[0]) == 1.0
        assert_close(vmap(lambda x: x + fun(many[0]), axis_name="i")(np.zeros(3)), np.full(3, 3.0))
        assert_close(vmap(fun, axis_name="i")(np.ones(2)), np.full(2, 2.0))
        last = vmap(lambda x: x + of_many(many)[11], axis_name="i")(np.zeros(3))
        assert_close(last, np.full(3, 3.0))


def test_a_closed_over_function_without_batched_operands() -> None:
    fun = jit(lambda: axis_index("i") * 2)
    assert_close(
        vmap(lambda x: x + fun(), axis_name="i")(np.zeros(3, np.int32)),
        np.arange(3, dtype=np.int32) * 2,
    )


def test_axis_index_needs_no_argument() -> None:
    got = vmap(lambda: axis_index("i"), axis_name="i", axis_size=3)()
    assert isinstance(got, Array)
    assert_close(got, np.arange(3, dtype=np.int32))


def test_a_jaxpr_says_which_axes_it_goes_over() -> None:
    fun = lambda x: jit(lambda y: psum(y, "i") * axis_size("j"))(x) + axis_index("j")
    jaxpr = make_jaxpr(fun, axis_env=[("i", 4), ("j", 2)])(np.float32(1.0))
    assert_prints(
        jaxpr,
        """
        { lambda a:f32[] ; NamedAxis<i=4> NamedAxis<j=2> ; let
            b:f32[] = closed_call[name=<lambda>] a
              jaxpr { lambda c:f32[] ; NamedAxis<i=4> ; let
                  d:f32[] = psum[axes=(i=4,)] c ! NamedAxis<i=4>
                  e:f32[] = mul d 2.0
                in (e,) }
            f:i32[] = axis_index[axes=(j=2,)] ! NamedAxis<j=2>
            g:f32[] = convert[dtype=f32] f
            h:f32[] = add b g
          in (h,) }
        """,
    )


def test_collectives_whose_results_nobody_uses_go() -> None:
    fun = lambda x: (psum(x, "i"), x)[1]
    assert make_jaxpr(fun, axis_env=I4)(1.0).eqns == ()

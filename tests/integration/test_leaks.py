"""Tracers that outlive their function: the leak checker tells who holds them, and their use is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    EscapedTracerError,
    LeakError,
    checking_leaks,
    closed_call,
    custom_jvp,
    custom_linear_solve,
    custom_root,
    custom_vjp,
    grad,
    hessian,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    stop_gradient,
    vjp,
    vmap,
)
from fiveloop.core.ir.source import function_source
from fiveloop.loops import cond, for_loop, fori_loop, map, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.misuse import assert_within, raised

X = np.array([1.0, 2.0, 3.0])


class Box:
    """Something with an attribute."""

    item: Any = None


kept: list[Any] = []
untyped_scan: Any = scan
untyped_while: Any = while_loop
box = Box()
the_global: Any = None


def in_a_list(x: Any) -> Any:
    kept.append(x * 2.0)
    return x


def on_an_object(x: Any) -> Any:
    box.item = {"deep": (x * 2.0,)}
    return x


def in_a_global(x: Any) -> Any:
    global the_global
    the_global = x * 2.0
    return x


def in_a_closure() -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    inner: Any = None

    def f(x: Any) -> Any:
        nonlocal inner
        inner = x * 2.0
        return x

    return f, lambda: inner


def in_a_generator() -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    def numbers(x: Any) -> Iterator[Any]:
        y = x * 2.0
        yield 1
        yield y

    alive: list[Any] = []

    def f(x: Any) -> Any:
        alive.append(numbers(x))
        next(alive[0])
        return x

    return f, lambda: next(alive[0])


def in_a_returned_function() -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    made: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2.0
        made.append(lambda: y)
        return x

    return f, lambda: made[0]()


def in_a_list_of(name: str) -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    if name == "list":
        return in_a_list, lambda: kept[0]
    if name == "object":
        return on_an_object, lambda: box.item["deep"][0]
    if name == "global":
        return in_a_global, lambda: the_global
    ways = {
        "closure": in_a_closure,
        "generator": in_a_generator,
        "function": in_a_returned_function,
    }
    return ways[name]()


WAYS = ["list", "object", "global", "closure", "generator", "function"]
HOLDERS = {
    "list": "a list in the global `kept` of",
    "object": "a tuple in a dict in the attribute `item` of an object of type Box",
    "global": "the global `the_global` of",
    "closure": "the variable `inner` that f at ",
    "generator": "` of the generator numbers",
    "function": "the variable `y` that <lambda> at ",
}
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: jit(f)(X),
    "closed_call": lambda f: closed_call(f)(X),
    "checkpoint": lambda f: checkpoint(f)(X),
    "make_jaxpr": lambda f: make_jaxpr(f)(X),
    "vmap": lambda f: vmap(f)(X),
    "jvp": lambda f: jvp(f, (X,), (X,)),
    "linearize": lambda f: linearize(f, X),
    "vjp": lambda f: vjp(f, X),
    "grad": lambda f: grad(lambda x: f(x).sum())(X),
    "jit of grad": lambda f: jit(grad(lambda x: f(x).sum()))(X),
    "scan": lambda f: scan(lambda c, x: (c, f(x)), 0.0, X),
    "for": lambda f: for_loop(2, lambda i, r: [None, f(r[i])][0], fnp.ones(3)),
    "while": lambda f: while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, X)),
    "cond": lambda f: cond(True, f, lambda x: x, X),
}

# Each transform with two ways, and each way with two transforms.
PAIRS = sorted(
    {(way, transform) for transform in TRANSFORMS for way in ("list", "closure")}
    | {(way, transform) for way in WAYS for transform in ("jit", "grad")}
)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    global the_global
    kept.clear()
    box.item = the_global = None


@pytest.mark.parametrize(("way", "transform"), PAIRS)
def test_use_after_the_end(way: str, transform: str) -> None:
    f, get = in_a_list_of(way)
    TRANSFORMS[transform](f)
    error = raised(lambda: get() + 1.0)
    assert type(error) is EscapedTracerError
    message, _, place = str(error).partition("\n  at ")
    assert "has escaped: that function has returned" in message
    assert "while tracing" in message
    assert_within(test_use_after_the_end, place)


def test_the_message_names_all_lines() -> None:
    jit(in_a_list)(X)
    message, _, place = str(raised(lambda: np.asarray(kept[0] + 1.0))).partition("\n  at ")
    assert_within(test_the_message_names_all_lines, place)
    start, _, rest = message.partition(" made at ")
    made, _, rest = rest.partition(" while tracing ")
    assert start == "a traced value of type f64[3]"
    assert_within(in_a_list, made)
    assert rest == (
        f"{function_source(in_a_list)} has escaped: that function has returned, so the value no longer exists; return "
        f"it from the function instead of storing it"
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda x: float(x),
        lambda x: bool(x > 0.0),
        lambda x: np.asarray(x),
        lambda x: X[x],
        lambda x: jit(lambda y: y + x)(1.0),
        lambda x: vmap(lambda y: y + x)(X),
        lambda x: grad(lambda y: (y * x).sum())(1.0),
        lambda x: scan(lambda c, y: (c + x.sum(), y), 0.0, X),
        lambda x: new_ref(x),
        lambda x: new_ref(fnp.ones(3, np.float64)).__setitem__(0, x[0]),
        lambda x: fori_loop(0, 2, lambda i, t: t + x[0], 0.0),
        lambda x: jit(lambda: x)(),
    ],
)
def test_every_use_is_an_error(use: Callable[[Any], Any]) -> None:
    jit(in_a_list)(X)
    vmap(lambda x: in_a_list(x))(np.ones((2, 3)))
    for x in kept:
        error = raised(lambda x=x: use(x))  # type: ignore[misc]
        assert isinstance(error, EscapedTracerError), error


def test_a_value_in_a_ref_that_outlives_the_function() -> None:
    def f(x: Any) -> Any:
        inner = new_ref(x)
        kept.append(inner)
        return inner[...]

    jit(f)(X)
    error = raised(lambda: kept[0][0])
    assert type(error) is EscapedTracerError


# The search goes over every object there is: each transform with one way, and each way with one transform.
@pytest.mark.parametrize(
    ("way", "transform"),
    [*(("list", transform) for transform in TRANSFORMS), *((way, "jit") for way in WAYS[1:])],
)
def test_a_leak_is_found(way: str, transform: str) -> None:
    f, _ = in_a_list_of(way)
    with checking_leaks():
        error = raised(lambda: TRANSFORMS[transform](f))
    assert type(error) is LeakError, error
    message, _, place = str(error).partition("\n  at ")
    assert "is still held after that function has returned, by " in message
    assert HOLDERS[way] in message, message
    assert place


def test_a_leak_in_a_function_that_was_jitted_before() -> None:
    f = jit(in_a_list)
    f(X)
    kept.clear()
    with checking_leaks():
        assert type(raised(lambda: f(X))) is LeakError


def clean(x: Any) -> Any:
    ref = new_ref(x)

    def body(i: Any, refs: Any) -> None:
        refs[i] = ref[i] * 2.0 + checkpoint(fnp.sin)(refs[i])
        ref[i] += cond(refs[i] > 0, lambda y: y, lambda y: -y, refs[i])

    out = for_loop(3, body, x)
    last, ys = untyped_scan(lambda c, y: (c + checkpoint(fnp.cos)(y), c * y), 0.0, out)
    n, _ = while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2.0), (0, 1.0))
    return last + ys.sum() + jit(closed_call(fnp.sum))(freeze(ref)) + map(fnp.exp, x).sum() + n


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f(X),
        lambda f: jit(f)(X),
        lambda f: jvp(f, (X,), (X,)),
        lambda f: vmap(f)(np.stack([X, X])),
        lambda f: jit(vmap(f))(np.stack([X, X])),
        lambda f: make_jaxpr(f)(X),
    ],
)
def test_no_false_alarm(transform: Callable[[Any], Any]) -> None:
    with checking_leaks():
        assert transform(clean) is not None


def test_no_false_alarm_in_reverse() -> None:
    def f(x: Any) -> Any:
        total, ys = untyped_scan(lambda c, y: (c + checkpoint(fnp.cos)(y), c * y), 0.0, x)
        return total + (ys**2).sum() + fori_loop(0, 3, lambda i, t: t * x[i], 1.0)

    with checking_leaks():
        for slope in (grad(f), jit(grad(f)), jit(grad(checkpoint(f))), jit(hessian(f))):
            assert slope(X) is not None
        value, back = vjp(f, X)
        assert back(value) is not None
        assert vmap(grad(f))(np.stack([X, X])).shape == (2, 3)


def test_an_error_in_the_function_is_itself() -> None:
    def f(x: Any) -> Any:
        kept.append(x)
        raise KeyError("mine")

    with checking_leaks():
        assert type(raised(lambda: jit(f)(X))) is KeyError
        assert jit(fnp.sin)(X).shape == (3,)


def by_rules(x: Any) -> Any:
    """Rules of every kind whose functions close over traced values, as they may."""
    fixed = stop_gradient(x)

    def with_jvp(y: Any) -> Any:
        f = custom_jvp(lambda y: y * fixed)
        f.defjvp(lambda primals, tangents: (primals[0] * fixed, tangents[0] * fixed))
        return f(y)

    def with_vjp(y: Any) -> Any:
        f = custom_vjp(lambda y: y * fixed)
        f.defvjp(lambda y: (y * fixed, fnp.sin(y)), lambda res, ct: (ct * fixed + 0.0 * res,))
        return f(y)

    root = custom_root(
        lambda z: z * z - x, x, lambda f, z: fnp.sqrt(fixed), lambda g, y: y / g(fnp.ones_like(y))
    )
    solution = custom_linear_solve(lambda z: z * x, x, lambda f, b: b / fixed, symmetric=True)
    return (with_jvp(x * 2.0) + with_vjp(x * 3.0) + root + solution).sum()


BY_RULES: list[Callable[[Any], Any]] = [
    lambda f: jit(f)(X),
    lambda f: grad(f)(X),
    lambda f: jit(grad(f))(X),
    lambda f: jit(grad(checkpoint(f)))(X),
    lambda f: grad(jit(f))(X),
    lambda f: jit(vmap(grad(f)))(np.stack([X, X])),
    lambda f: untyped_scan(lambda c, _: (c + f(c), None), X, length=2)[0],
]


@pytest.mark.parametrize("transform", BY_RULES)
def test_what_rules_close_over_is_no_leak(transform: Callable[[Any], Any]) -> None:
    with checking_leaks():
        assert transform(by_rules) is not None


@pytest.mark.parametrize("transform", BY_RULES)
def test_a_leak_beside_rules_is_found(transform: Callable[[Any], Any]) -> None:
    def f(x: Any) -> Any:
        kept.append(x)
        return by_rules(x)

    with checking_leaks():
        error = raised(lambda: transform(f))
    assert type(error) is LeakError, error
    assert HOLDERS["list"] in str(error)


@pytest.mark.parametrize("transform", [grad, vmap, lambda f: jit(vmap(grad(f)))])
def test_the_lines_are_named_in_every_transform(transform: Any) -> None:
    def f(x: Any) -> Any:
        kept.append(x * 2.0)
        return x

    transform(f)(X if transform is not grad else 1.0)
    message = str(raised(lambda: kept[0] + 1.0))
    made, _, rest = message.partition(" made at ")[2].partition(" while tracing ")
    assert_within(f, made)
    assert rest.startswith(f"{function_source(f)} has escaped")


def test_a_rule_within_a_transform_names_no_function_of_the_library() -> None:
    def rule(primals: Any, tangents: Any) -> Any:
        kept.append(tangents[0] * 2.0)
        return primals[0], tangents[0]

    f = custom_jvp(fnp.sum)
    f.defjvp(rule)
    jit(grad(f))(1.0)
    message = str(raised(lambda: kept[0] + 1.0))
    made, _, rest = message.partition(" made at ")[2].partition(" while tracing ")
    assert_within(rule, made)
    assert rest.startswith("a transform has escaped")

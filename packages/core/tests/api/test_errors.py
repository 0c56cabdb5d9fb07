"""Bad input to the user calls: arguments, axes, tangents, static arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    RuleError,
    closed_call,
    explain_cache_misses,
    grad,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    tree,
    vjp,
    vmap,
)
from fiveloop.core.extend import as_value, to_array, transpose_jaxpr
from fiveloop.core.ir.source import function_source
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.misuse import assert_misuse

X = to_array(as_value(np.arange(4, dtype=np.float32)))
M = to_array(as_value(np.ones((3, 2), np.float32)))
K = to_array(as_value(np.arange(4, dtype=np.int32)))

Case = tuple[Callable[[], object], type[Exception], str]


NOT_STATIC = (
    "; if it decides what is traced, name the argument in static_argnums or static_argnames, else make its class a "
    "tree with `fiveloop.core.register_node`"
)


NO_TREE = "; make its class a tree with `fiveloop.core.register_node`"


class Thing:
    """Not an array."""

    def __repr__(self) -> str:
        return "Thing()"


def square(x: Any) -> Any:
    return (x * x).sum()


LEAVES: dict[str, Case] = {
    "jit": (
        lambda: jit(square)({"a": Thing()}),
        TypeError,
        "jit of square: argument `x`['a'] must be an array or a scalar, got Thing() of type Thing"
        + NOT_STATIC,
    ),
    "jit, by name": (
        lambda: jit(lambda *args, **named: 0)(X, y=[X, "s"]),
        TypeError,
        "jit of <lambda>: argument `y`[1] must be an array or a scalar, got 's' of type str"
        + NOT_STATIC,
    ),
    "jit, beside a static argument": (
        lambda: jit(lambda n, *rest: 0, static_argnums=0)("s", X, Thing()),
        TypeError,
        "jit of <lambda>: argument 2 must be an array or a scalar, got Thing() of type Thing"
        + NOT_STATIC,
    ),
    "grad": (
        lambda: grad(square)("s"),
        TypeError,
        "grad of square: argument `x` must be an array or a scalar, got 's' of type str",
    ),
    "grad, second argument": (
        lambda: grad(lambda x, y: 0.0, argnums=1)(X, [Thing()]),
        TypeError,
        "grad of <lambda>: argument `y`[0] must be an array or a scalar, got Thing() of type Thing"
        + NO_TREE,
    ),
    "vmap": (
        lambda: vmap(square)(Thing()),
        TypeError,
        "vmap of square: argument `x` must be an array or a scalar, got Thing() of type Thing"
        + NO_TREE,
    ),
    "jvp, primals": (
        lambda: jvp(square, ([Thing()],), ([X],)),
        TypeError,
        "jvp: primals[0][0] must be an array or a scalar, got Thing() of type Thing",
    ),
    "jvp, tangents": (
        lambda: jvp(square, (X,), (Thing(),)),
        TypeError,
        "jvp: tangents[0] must be an array or a scalar, got Thing() of type Thing",
    ),
    "vjp": (
        lambda: vjp(square, Thing()),
        TypeError,
        "vjp of square: argument `x` must be an array or a scalar, got Thing() of type Thing"
        + NO_TREE,
    ),
    "linearize": (
        lambda: linearize(square, Thing()),
        TypeError,
        "linearize of square: argument `x` must be an array or a scalar, got Thing() of type Thing"
        + NO_TREE,
    ),
    "make_jaxpr": (
        lambda: make_jaxpr(square)(Thing()),
        TypeError,
        "tracing of square: argument `x` must be an array or a scalar, got Thing() of type Thing; if it "
        "decides what is traced, close over it: `lambda *others: f(..., Thing())`",
    ),
    "closed_call": (
        lambda: closed_call(square)(Thing()),
        TypeError,
        "closed_call of square: argument `x` must be an array or a scalar, got Thing() of type Thing"
        + NO_TREE,
    ),
    "arguments that the function does not take": (
        lambda: jit(square)(X, X),  # type: ignore[call-arg]  # that is the point
        TypeError,
        "square() takes 1 positional argument but 2 were given",
    ),
    "an argument that the function misses": (
        lambda: vmap(lambda x, y: x)(X),  # type: ignore[call-arg]  # that is the point
        TypeError,
        "<lambda>.<locals>.<lambda>() missing 1 required positional argument: 'y'",
    ),
    "not a function": (
        lambda: jit(3),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "jit: expected a function, got 3 of type int",
    ),
}
DERIVATIVES: dict[str, Case] = {
    "an array": (
        lambda: grad(lambda x: x * 2)(X),
        TypeError,
        "grad of <lambda>: it must return one float scalar, got f32[4]; reduce it, or use `vjp`",
    ),
    "an integer": (
        lambda: grad(lambda x: K.sum())(X),
        TypeError,
        "grad of <lambda>: it must return one float scalar, got i32[]; reduce it, or use `vjp`",
    ),
    "a complex number": (
        lambda: grad(lambda x: (x * 1j).sum())(X),
        TypeError,
        "grad of <lambda>: it must return one float scalar, got c64[]; reduce it, or use `vjp`",
    ),
    "a pair": (
        lambda: grad(lambda x: (x.sum(), x))(X),
        TypeError,
        "grad of <lambda>: it must return one float scalar, got 2 arrays; use `vjp` for other results, or "
        "has_aux=True for a pair",
    ),
    "nothing": (
        lambda: grad(lambda x: None)(X),
        TypeError,
        "grad of <lambda>: it must return one float scalar, got no arrays; use `vjp` for other results, or "
        "has_aux=True for a pair",
    ),
    "an integer argument": (
        lambda: grad(square)(K),
        TypeError,
        "grad of square: argument `x` must be floating to be differentiated, got i32[4]; convert it first, or "
        "leave it out of argnums",
    ),
    "an integer leaf": (
        lambda: grad(lambda d: 0.0)({"a": X, "n": 3}),
        TypeError,
        "grad of <lambda>: argument `d`['n'] must be floating to be differentiated, got i32*[]; convert it "
        "first, or leave it out of argnums",
    ),
    "argnums": (
        lambda: grad(square, argnums=1)(X),
        ValueError,
        "grad of square: argnums must name some of its 1 positional arguments by number, got 1",
    ),
    "argnums twice": (
        lambda: grad(lambda x, y: x * y, argnums=(0, 1, -2))(1.0, 2.0),
        ValueError,
        "grad of <lambda>: argnums must name each argument once, got (0, 1, -2), which names argument `x` twice",
    ),
    "argnums by name": (
        lambda: grad(square, argnums="x")(X),  # type: ignore[arg-type]  # that is the point
        ValueError,
        "grad of square: argnums must name some of its 1 positional arguments by number, got 'x'",
    ),
    "nothing to compile": (
        lambda: jit(None),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "jit: expected a function, got None of type NoneType",
    ),
    "nothing to map": (
        lambda: tree.map(None, [X]),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "tree_map: expected a function, got None of type NoneType",
    ),
    "nothing to tell": (
        lambda: explain_cache_misses(3).__enter__(),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "explain_cache_misses: tell: expected a function, got 3 of type int",
    ),
    "an argument of a class that is no tree": (
        lambda: grad(square)(Thing()),
        TypeError,
        "grad of square: argument `x` must be an array or a scalar, got Thing() of type Thing"
        + NO_TREE,
    ),
    "tangent of another shape": (
        lambda: jvp(lambda d: d["a"], ({"a": X},), ({"a": M},)),
        TypeError,
        "jvp: tangents[0]['a'] must have the type of the primals, f32[4], got f32[3,2]",
    ),
    "tangent of another dtype": (
        lambda: jvp(square, (X,), (X.astype(np.float64),)),
        TypeError,
        "jvp: tangents[0] must have the type of the primals, f32[4], got f64[4]",
    ),
    "tangents of another structure": (
        lambda: jvp(square, (X,), (X, X)),
        TypeError,
        "jvp: tangents must have the structure of the primals, PyTreeDef((*,)), got PyTreeDef((*, *))",
    ),
    "primals without a tuple": (
        lambda: jvp(square, X, X),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "jvp: primals must be a tuple or a list with an entry for each argument, got Array",
    ),
    "tangent of a linear function": (
        lambda: linearize(square, X)[1](M),
        TypeError,
        "linearize: tangents[0] must have the type of the primals, f32[4], got f32[3,2]",
    ),
    "cotangent of another type": (
        lambda: vjp(lambda x: {"r": x}, X)[1]({"r": M}),
        TypeError,
        "vjp: cotangent['r'] must have the type of the result, f32[4], got f32[3,2]",
    ),
    "cotangent of another structure": (
        lambda: vjp(lambda x: (x, x), X)[1](X),
        TypeError,
        "vjp: cotangent must have the structure of the result, PyTreeDef((*, *)), got PyTreeDef(*)",
    ),
    "transpose of what is not linear": (
        lambda: transpose_jaxpr(make_jaxpr(sin)(X), (True,), (True,)),
        RuleError,
        "`sin` has no transpose: it is not linear; differentiate it first (`jvp`, `linearize`)",
    ),
}
BATCHES: dict[str, Case] = {
    "sizes": (
        lambda: vmap(lambda a, b: a)({"p": X}, M),
        ValueError,
        "vmap of <lambda>: expected batches of one size, got: argument `a`['p'] has 4, argument `b` has 3",
    ),
    "axis_size": (
        lambda: vmap(lambda a: a, axis_size=5)(X),
        ValueError,
        "vmap of <lambda>: expected batches of one size, got: argument `a` has 4, axis_size has 5",
    ),
    "no such axis": (
        lambda: vmap(lambda a: a, in_axes=2)(M),
        ValueError,
        "vmap of <lambda>: argument `a`: in_axes says that its axis 2 is the batch, but it is f32[3,2]",
    ),
    "a scalar": (
        lambda: vmap(lambda a: a)(1.0),
        ValueError,
        "vmap of <lambda>: argument `a`: in_axes says that its axis 0 is the batch, but it is f32*[]",
    ),
    "in_axes of no integers": (
        lambda: vmap(lambda a: a, in_axes="0")(M),
        TypeError,
        "vmap of <lambda>: argument `a`: in_axes must hold ints and None, got '0'",
    ),
    "number of in_axes": (
        lambda: vmap(lambda a: a, in_axes=(0, 0))(M),
        ValueError,
        "vmap of <lambda>: in_axes has 2 entries for 1 arguments",
    ),
    "structure of in_axes": (
        lambda: vmap(lambda a: a, in_axes=({"p": 0},))({"q": M}),
        ValueError,
        "vmap of <lambda>: in_axes must be a prefix of the tree that it is for, which differs at [0]: "
        "expected dict with keys ['p'], got dict with keys ['q']",
    ),
    "nothing batched": (
        lambda: vmap(lambda a: a, in_axes=None)(M),
        ValueError,
        "vmap of <lambda>: no argument is batched, so the size of the batch is unknown; give axis_size or an "
        "in_axes that is not None",
    ),
    "no such axis out": (
        lambda: vmap(lambda a: a, out_axes=5)(M),
        ValueError,
        "vmap of <lambda>: out_axes names axis 5 of a result with 2 axes",
    ),
    "batched but said not to be": (
        lambda: vmap(lambda a: a, out_axes=None)(M),
        ValueError,
        "vmap of <lambda>: out_axes is None for a result that depends on the batch",
    ),
}
JIT: dict[str, Case] = {
    "static argument without a hash": (
        lambda: jit(lambda a, b: a, static_argnums=1)(X, [1]),
        TypeError,
        "jit of <lambda>: static argument `b` must be hashable, got [1] of type list; pass a tuple in place of a list",
    ),
    "static argument by name": (
        lambda: jit(lambda a, b: a, static_argnames="b")(X, b={}),
        TypeError,
        "jit of <lambda>: static argument `b` must be hashable, got {} of type dict; pass a tuple of its items in "
        "place of a dict",
    ),
    "array as a static argument": (
        lambda: jit(lambda a, b: a, static_argnums=1)(X, K),
        TypeError,
        "jit of <lambda>: static argument `b` must be hashable, got Array([0, 1, 2, 3], dtype=int32) of type "
        "Array; leave it out of the static ones",
    ),
    "static_argnums": (
        lambda: jit(lambda a, b: a, static_argnums=5),
        ValueError,
        "jit of <lambda>: static_argnums must name one of its 2 positional arguments, got 5",
    ),
    "static_argnames": (
        lambda: jit(lambda a, b: a, static_argnames="c"),
        ValueError,
        "jit of <lambda>: static_argnames names 'c', which is no argument of it",
    ),
    "static and donated": (
        lambda: jit(lambda a, b: a, static_argnames="b", donate_argnums=1),
        ValueError,
        "jit of <lambda>: expected no argument to be static and donated, got 'b' as both; a static argument is a "
        "Python value without a buffer that could be donated: make it one of the two",
    ),
    "jit: inline": (
        lambda: jit(lambda a: a, inline=3),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "jit of <lambda>: expected `inline` to be True or False, got 3 of type int",
    ),
    "static_argnums by name": (
        lambda: jit(lambda a, b: a, static_argnums="b"),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "jit of <lambda>: static_argnums must be an integer or a tuple of them, got 'b'; names go into "
        "static_argnames",
    ),
    "traced value as a static argument": (
        lambda: jit(lambda n: jit(lambda a, b: a, static_argnums=1)(X, n))(3),
        TypeError,
        "jit of <lambda>: static argument `b` must be hashable, got Traced<i32*[]> of type StageTracer; leave it out "
        "of the static ones, or close over it where a transform around traces all arguments: "
        "`lambda *others: f(..., n)`",
    ),
    "make_jaxpr: static argument without a hash": (
        lambda: make_jaxpr(lambda a, b: a, static_argnums=1)(X, [1]),
        TypeError,
        "make_jaxpr of <lambda>: static argument `b` must be hashable, got [1] of type list; pass a tuple in place of "
        "a list",
    ),
    "make_jaxpr: static_argnums": (
        lambda: make_jaxpr(lambda a, b: a, static_argnums=5),
        ValueError,
        "make_jaxpr of <lambda>: static_argnums must name one of its 2 positional arguments, got 5",
    ),
    "make_jaxpr: static_argnames": (
        lambda: make_jaxpr(lambda a, b: a, static_argnames="c"),
        ValueError,
        "make_jaxpr of <lambda>: static_argnames names 'c', which is no argument of it",
    ),
    "make_jaxpr: a leaf after a static argument": (
        lambda: make_jaxpr(lambda n, a: a, static_argnums=0)(3, Thing()),
        TypeError,
        "tracing of <lambda>: argument `a` must be an array or a scalar, got Thing() of type Thing; if it "
        "decides what is traced, close over it: `lambda *others: f(..., Thing())`",
    ),
    "compiled for another shape": (
        lambda: jit(square).lower(X).compile()(M),
        TypeError,
        "compiled square: argument `x` must be f32[4], got f32[3,2]; compile it for these types, or call the "
        "jitted function",
    ),
    "compiled for another dtype": (
        lambda: jit(square).lower(X).compile()(K),
        TypeError,
        "compiled square: argument `x` must be f32[4], got i32[4]; compile it for these types, or call the "
        "jitted function",
    ),
    "compiled for another leaf, behind a static argument": (
        lambda: (
            jit(lambda n, d: d, static_argnums=0)
            .lower(3, {"a": X, "b": X})
            .compile()({"a": X, "b": K})
        ),
        TypeError,
        "compiled <lambda>: argument `d`['b'] must be f32[4], got i32[4]; compile it for these types, or call the "
        "jitted function",
    ),
    "compiled for another structure": (
        lambda: jit(square).lower(X).compile()(X, X),
        TypeError,
        "compiled square: expected arguments of structure PyTreeDef(((*,), {})), got PyTreeDef(((*, *), {}))",
    ),
}
TABLES = {"leaves": LEAVES, "derivatives": DERIVATIVES, "batches": BATCHES, "jit": JIT}
CASES = [
    pytest.param(*case, id=f"{t}: {name}")
    for t, table in TABLES.items()
    for name, case in table.items()
]


@pytest.mark.parametrize(("call", "kind", "message"), CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)


def test_results_that_are_no_arrays() -> None:
    def f(x: Any) -> Any:
        return {"r": [x, Thing()]}

    where = function_source(f)
    message = (
        f"the result['r'][1] of {where} must be an array or a scalar, got Thing() of type Thing"
    )
    assert_misuse(lambda: jit(f)(X), TypeError, message)
    assert_misuse(lambda: vmap(f)(X), TypeError, message)
    assert_misuse(lambda: vjp(f, X), TypeError, message)


def test_no_pair_under_has_aux() -> None:
    where = function_source(square)
    message = f"has_aux: {where} must return a pair (result, auxiliary), got f32[]"
    assert_misuse(lambda: grad(square, has_aux=True)(X), TypeError, message)
    assert_misuse(lambda: jvp(square, (X,), (X,), has_aux=True), TypeError, message)


MIXED = {1: 1.0, "a": 2.0}
NO_ORDER = (
    "expected dict keys that can be put in order, got 1, 'a'; "
    "'<' not supported between instances of 'str' and 'int'"
)


@pytest.mark.parametrize("transform", [jit, grad, vmap, make_jaxpr, closed_call])
def test_keys_of_arguments_that_have_no_order_are_named(transform: Any) -> None:
    def first(x: Any, d: Any) -> Any:
        return x

    what = "tracing" if transform is make_jaxpr else transform.__name__
    call = lambda: transform(first)(X, [1.0, MIXED])
    assert_misuse(call, TypeError, f"{what} of first: argument `d`[1]: {NO_ORDER}")


@pytest.mark.parametrize(
    ("before", "call"),
    [
        (1.0, lambda f: f),
        ([to_array(as_value(1.0))] * 20, lambda f: f),
        (1.0, lambda f: f.lower),
        (1.0, lambda f: f.eval_shape),
        (1.0, lambda f: jit(f, donate_argnums=0)),
    ],
    ids=["a number", "many arrays", "lower", "eval_shape", "donated"],
)
def test_keys_that_have_no_order_are_named_however_a_jitted_function_is_called(
    before: Any, call: Callable[[Any], Callable[[Any], Any]]
) -> None:
    @jit
    def same(d: Any) -> Any:
        return d

    same(before)
    same(before)
    wanted = f"jit of same: argument `d`[1]: {NO_ORDER}"
    assert_misuse(lambda: call(same)([1.0, MIXED]), TypeError, wanted)


def test_keys_that_have_no_order_are_named_when_a_compiled_function_is_called() -> None:
    compiled = jit(abs).lower(1.0).compile()
    assert_misuse(lambda: compiled(MIXED), TypeError, f"compiled abs: argument `x`: {NO_ORDER}")

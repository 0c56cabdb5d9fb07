"""Bad input: each error has the right type, names the argument, what was expected and given, and the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    ConcretizationError,
    EscapedTracerError,
    RuleError,
    as_value,
    closed_call,
    grad,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    to_array,
    transpose_jaxpr,
    vjp,
    vmap,
)
from fiveloop.core.ir.source import function_source
from fiveloop.core.primitives.elementwise import select, shift_left, sin
from fiveloop.core.testing.misuse import assert_misuse, assert_within

X = to_array(as_value(np.arange(4, dtype=np.float32)))
M = to_array(as_value(np.ones((3, 2), np.float32)))
K = to_array(as_value(np.arange(4, dtype=np.int32)))

Case = tuple[Callable[[], object], type[Exception], str]


class Thing:
    """Not an array."""

    def __repr__(self) -> str:
        return "Thing()"


def square(x: Any) -> Any:
    return (x * x).sum()


NO_INDEX = "expected an index to be an integer, a slice, an array of integers, `...` or None, got"
OPERATIONS: dict[str, Case] = {
    "shapes": (
        lambda: X + M,
        ValueError,
        "add: expected shapes that broadcast together, got (4,), (3, 2)",
    ),
    "shapes in jit": (
        lambda: jit(lambda a, b: a + b)(X, M),
        ValueError,
        "add: expected shapes that broadcast together, got (4,), (3, 2)",
    ),
    "shapes in grad of vmap": (
        lambda: grad(lambda a: vmap(lambda b: b + M)(a).sum())(X[None]),
        ValueError,
        "add: expected shapes that broadcast together, got (4,), (3, 2)",
    ),
    "dtype": (lambda: X << 1, TypeError, "shift_left: expected integers, got f32[4]"),
    "dtype of a bool": (lambda: -(X > 0), TypeError, "neg: expected numbers, got bool[4]"),
    "dtype in jit": (
        lambda: jit(lambda a: shift_left(a, 1))(X),
        TypeError,
        "shift_left: expected integers, got f32[4]",
    ),
    "condition": (
        lambda: select(X, X, X),
        TypeError,
        "select: expected `pred` to hold bools, got f32[4]",
    ),
    "not an array": (
        lambda: X + Thing(),
        TypeError,
        "add: argument `y` must be an array or a scalar, got Thing() of type Thing",
    ),
    "None": (
        lambda: X * None,
        TypeError,
        "mul: argument `y` must be an array or a scalar, got None of type NoneType",
    ),
    "strings": (
        lambda: sin(np.array(["a"])),
        TypeError,
        "sin: argument `x` must hold numbers of at most 64 bits a part, got a NumPy array of dtype <U1",
    ),
    "inner sizes": (
        lambda: X @ M,
        ValueError,
        "matmul: expected inner sizes that agree, got 4 and 3 in f32[4] @ f32[3,2]",
    ),
    "reshape": (
        lambda: M.reshape(4, 2),
        ValueError,
        "reshape: expected a shape of 6 elements for an array of shape (3, 2), got (4, 2)",
    ),
    "axis out of range": (
        lambda: M.sum(axis=3),
        ValueError,
        "sum: expected `axis` in [-2, 2) for 2 axes, got 3",
    ),
    "axis no integer": (
        lambda: M.sum(axis=1.5),
        TypeError,
        "sum: expected `axis` to be an integer, got 1.5",
    ),
    "axis twice": (
        lambda: M.transpose(0, 0),
        ValueError,
        "transpose: expected each axis once in `perm`, got (0, 0)",
    ),
    "unknown dtype": (
        lambda: X.astype("float99"),
        TypeError,
        "astype: expected `dtype` to name a dtype, got 'float99'",
    ),
    "dtype of no numbers": (
        lambda: X.astype(object),
        TypeError,
        "astype: expected `dtype` to be one of numbers or bools, got object",
    ),
    "complex to real": (
        lambda: (X * 1j).astype("float32"),
        TypeError,
        "convert: expected a complex dtype for complex numbers, got float32 for c64[4]; take `real(x)` or "
        "`abs(x)` first",
    ),
    "integer out of range": (
        lambda: K + 2**40,
        OverflowError,
        "add: argument `y`: the integer 1099511627776 does not fit int32, which holds -2147483648 to "
        "2147483647; convert the other operand to a wider dtype first",
    ),
    "integer beyond all": (
        lambda: jit(lambda x: x)(2**70),
        OverflowError,
        "the integer 1180591620717411303424 does not fit int64",
    ),
    "negative power of integers": (
        lambda: K**-1,
        ValueError,
        "power: integers have no negative integer powers, got i32[4] ** -1",
    ),
    "length": (lambda: len(X[0]), TypeError, "len: expected a value with axes, got f32[]"),
    "iteration": (lambda: list(X[0]), TypeError, "iter: expected a value with axes, got f32[]"),
}
INDEXING: dict[str, Case] = {
    "out of bounds": (
        lambda: X[7],
        IndexError,
        "index 7 is out of bounds for axis 0 of size 4",
    ),
    "out of bounds in jit": (
        lambda: jit(lambda x: x[-5])(X),
        IndexError,
        "index -5 is out of bounds for axis 0 of size 4",
    ),
    "array out of bounds": (
        lambda: X[np.array([0, 9])],
        IndexError,
        "index 9 is out of bounds for axis 0 of size 4",
    ),
    "too many": (
        lambda: X[1, 2],
        IndexError,
        "expected at most 1 indices for an array of shape (4,), got 2 in (1, 2)",
    ),
    "float": (lambda: X[1.5], TypeError, f"{NO_INDEX} float 1.5"),
    "string": (lambda: X["a"], TypeError, f"{NO_INDEX} str 'a'"),
    "list": (
        lambda: X[[0, 1]],
        TypeError,
        f"{NO_INDEX} list [0, 1]; use a tuple for several axes, or numpy.array(...)",
    ),
    "array of floats": (
        lambda: X[X],
        TypeError,
        "expected an index array of integers or bools, got float32[4]",
    ),
    "mask of another shape": (
        lambda: X[np.ones(3, bool)],
        IndexError,
        "expected a mask of shape (4,) for axis 0 of an array of shape (4,), got (3,)",
    ),
    "slice from a traced value": (
        lambda: jit(lambda x, i: x[i:])(X, 1),
        TypeError,
        "expected the start of a slice of axis 0 to be known, got the traced value Traced<i32*[]>; "
        "use `ds(start, size)` for a run-time start",
    ),
    "assignment": (
        lambda: X.__setitem__(0, 1.0),
        TypeError,
        "an array of type f32[4] is immutable: use `x = x.at[index].set(v)`, or a Ref, in place of "
        "`x[index] = v`",
    ),
    "update of another shape": (
        lambda: X.at[0:2].set(M),
        ValueError,
        "cannot write a value of shape (3, 2) where the index selects shape (2,): it does not broadcast to it",
    ),
    "update of a higher dtype": (
        lambda: K.at[0].set(1.5),
        TypeError,
        "cannot write a value of dtype f32 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
}
LEAVES: dict[str, Case] = {
    "jit": (
        lambda: jit(square)({"a": Thing()}),
        TypeError,
        "jit of square: argument `x`['a'] must be an array or a scalar, got Thing() of type Thing",
    ),
    "jit, by name": (
        lambda: jit(lambda *args, **named: 0)(X, y=[X, "s"]),
        TypeError,
        "jit of <lambda>: argument `y`[1] must be an array or a scalar, got 's' of type str",
    ),
    "jit, beside a static argument": (
        lambda: jit(lambda n, *rest: 0, static_argnums=0)("s", X, Thing()),
        TypeError,
        "jit of <lambda>: argument 2 must be an array or a scalar, got Thing() of type Thing",
    ),
    "grad": (
        lambda: grad(square)("s"),
        TypeError,
        "grad of square: argument `x` must be an array or a scalar, got 's' of type str",
    ),
    "grad, second argument": (
        lambda: grad(lambda x, y: 0.0, argnums=1)(X, [Thing()]),
        TypeError,
        "grad of <lambda>: argument `y`[0] must be an array or a scalar, got Thing() of type Thing",
    ),
    "vmap": (
        lambda: vmap(square)(Thing()),
        TypeError,
        "vmap of square: argument `x` must be an array or a scalar, got Thing() of type Thing",
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
        "vjp of square: argument `x` must be an array or a scalar, got Thing() of type Thing",
    ),
    "linearize": (
        lambda: linearize(square, Thing()),
        TypeError,
        "linearize of square: argument `x` must be an array or a scalar, got Thing() of type Thing",
    ),
    "make_jaxpr": (
        lambda: make_jaxpr(square)(Thing()),
        TypeError,
        "tracing of square: argument `x` must be an array or a scalar, got Thing() of type Thing",
    ),
    "closed_call": (
        lambda: closed_call(square)(Thing()),
        TypeError,
        "closed_call of square: argument `x` must be an array or a scalar, got Thing() of type Thing",
    ),
    "not a function": (
        lambda: jit(3),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "jit: expected a function, got 3 of type int",
    ),
}
DERIVATIVES: dict[str, Case] = {
    "an array": (
        lambda: grad(lambda x: x * 2)(X),
        TypeError,
        "grad of <lambda>: it must return one float scalar, got f32[4]; reduce it, or use `vjp` or `jacrev`",
    ),
    "an integer": (
        lambda: grad(lambda x: K.sum())(X),
        TypeError,
        "grad of <lambda>: it must return one float scalar, got i32[]; reduce it, or use `vjp` or `jacrev`",
    ),
    "a complex number": (
        lambda: grad(lambda x: (x * 1j).sum())(X),
        TypeError,
        "grad of <lambda>: it must return one float scalar, got c64[]; reduce it, or use `vjp` or `jacrev`",
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
        "grad of <lambda>: it must return one float scalar, got 0 arrays; use `vjp` for other results, or "
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
    "argnums by name": (
        lambda: grad(square, argnums="x")(X),  # type: ignore[arg-type]  # that is the point
        ValueError,
        "grad of square: argnums must name some of its 1 positional arguments by number, got 'x'",
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
        lambda: jvp(square, X, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "jvp: primals must be a tuple or a list with one entry an argument, got Array",
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
        "vmap of <lambda>: in_axes must be a prefix of the tree that it is for, which differs at [0][0]: "
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
        "jit of <lambda>: static argument `b` must be hashable, got [1] of type list; a tuple in place of a list",
    ),
    "static argument by name": (
        lambda: jit(lambda a, b: a, static_argnames="b")(X, b={}),
        TypeError,
        "jit of <lambda>: static argument `b` must be hashable, got {} of type dict; a tuple in place of a list",
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
    "compiled for another shape": (
        lambda: jit(square).lower(X).compile()(M),
        TypeError,
        "the compiled function takes f32[4] as array 0 of its arguments, got f32[3,2]; compile it for these "
        "types, or call the jitted function",
    ),
    "compiled for another dtype": (
        lambda: jit(square).lower(X).compile()(K),
        TypeError,
        "the compiled function takes f32[4] as array 0 of its arguments, got i32[4]; compile it for these "
        "types, or call the jitted function",
    ),
    "compiled for another structure": (
        lambda: jit(square).lower(X).compile()(X, X),
        TypeError,
        "the compiled function takes arguments of structure PyTreeDef(((*,), {})), got "
        "PyTreeDef(((*, *), {}))",
    ),
}
TABLES = {
    "operations": OPERATIONS,
    "indexing": INDEXING,
    "leaves": LEAVES,
    "derivatives": DERIVATIVES,
    "batches": BATCHES,
    "jit": JIT,
}
CASES = [
    pytest.param(*case, id=f"{t}: {name}")
    for t, table in TABLES.items()
    for name, case in table.items()
]


@pytest.mark.parametrize(("call", "kind", "message"), CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)


def branch(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


CONTROL = "use `cond`, `select` or `while_loop` for control flow on traced values"
CONVERSIONS: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "bool": (
        lambda x: bool(x.sum() > 0),
        "Traced<bool[]>",
        f"a bool while {{}} is traced; {CONTROL}",
    ),
    "int": (
        lambda x: int(x.sum()),
        "Traced<f32[]>",
        "an int while {} is traced; sizes and static arguments must not depend on traced values",
    ),
    "float": (
        lambda x: float(x.sum()),
        "Traced<f32[]>",
        "a float while {} is traced; keep it an array, or compute it outside the traced function",
    ),
    "complex": (
        lambda x: complex(x.sum()),
        "Traced<f32[]>",
        "a complex number while {} is traced; keep it an array",
    ),
    "index": (
        lambda x: [0, 1][x.sum().astype("int32")],
        "Traced<i32[]>",
        "an index while {} is traced; use `dynamic_slice`, `ds(start, size)` or an array index instead",
    ),
    "item": (
        lambda x: x.sum().item(),
        "Traced<f32[]>",
        "a Python scalar while {} is traced; keep it an array, or return it from the function",
    ),
    "NumPy": (
        lambda x: np.asarray(x),
        "Traced<f32[4]>",
        "a NumPy array while {} is traced; use fiveloop.numpy instead of NumPy inside traced functions",
    ),
}


@pytest.mark.parametrize(("fun", "value", "rest"), CONVERSIONS.values(), ids=CONVERSIONS)
def test_a_traced_value_is_not_converted(
    fun: Callable[[Any], object], value: str, rest: str
) -> None:
    def call() -> Any:
        return jit(fun)(X)

    given, _, place = misuse(call, ConcretizationError).partition("\n  at ")
    assert given == f"the traced value {value} was asked to be {rest.format(function_source(fun))}"
    assert_within(fun, place)


@pytest.mark.parametrize("transform", [jit, vmap])
def test_control_flow_on_a_traced_value(transform: Callable[[Any], Any]) -> None:
    text = misuse(lambda: transform(branch)(X[None]), ConcretizationError)
    assert text.startswith(
        "the traced value Traced<bool[]> was asked to be a bool while branch at "
    )
    assert text.endswith("(branch)") and CONTROL in text
    assert_within(branch, text.partition("\n  at ")[2])


def test_control_flow_on_a_batched_value_within_grad() -> None:
    text = misuse(lambda: vmap(grad(lambda x: branch(x).sum()))(X[:, None]), ConcretizationError)
    assert_within(branch, text.partition("\n  at ")[2])


def jit_of_grad(fun: Callable[..., Any]) -> Callable[..., Any]:
    return jit(grad(fun))


STAGING = (jit, make_jaxpr, jit_of_grad)


def misuse(call: Callable[[], object], kind: type[Exception]) -> str:
    """The message of the error that a call raises."""
    with pytest.raises(kind) as error:
        call()
    assert type(error.value) is kind
    return str(error.value)


@pytest.mark.parametrize("transform", [jit, make_jaxpr, jit_of_grad, vmap, grad])
@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: sin(x),
        lambda x: bool(x),
        lambda x: jit(lambda y: y * x)(X),
        lambda x: x[None],
    ],
    ids=["operator", "primitive", "bool", "closure", "index"],
)
def test_a_tracer_that_escaped(
    transform: Callable[[Any], Any], use: Callable[[Any], object]
) -> None:
    kept = []

    def leak(x: Any) -> Any:
        kept.append(x * 2.0)
        kept.append(x)
        return (x * x).sum()

    transform(leak)(X)
    for value, came in zip(kept, ("made at", "that came in as an argument"), strict=True):
        text = misuse(lambda value=value: use(value), EscapedTracerError)  # type: ignore[misc]  # bound now
        given, _, place = text.partition("\n  at ")
        assert given.startswith("a traced value of type f32[")
        assert (
            f"while tracing {function_source(leak)} has escaped: that function has returned, so the value"
            in given
        )
        assert (came in given) == (transform in STAGING)
        assert_within(use, place)


def test_the_error_of_an_escaped_tracer_names_three_places() -> None:
    kept = []

    def leak(x: Any) -> Any:
        kept.append(sin(x))
        return x

    jit(leak)(X)
    line = leak.__code__.co_firstlineno
    file = leak.__code__.co_filename
    assert_misuse(
        lambda: kept[0] + 1,
        EscapedTracerError,
        f"a traced value of type f32[4] made at {file}:{line + 1} (leak) while tracing leak at {file}:{line} has "
        "escaped: that function has returned, so the value no longer exists; return it from the function instead "
        "of storing it",
    )


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


def test_an_error_within_a_transform_names_the_line_of_its_equation() -> None:
    def program(x: Any) -> Any:
        return sin(x) * 2.0

    jaxpr = make_jaxpr(program)(X)
    text = misuse(lambda: transpose_jaxpr(jaxpr, (True,), (True,)), RuleError)
    assert_within(program, text.partition("\n  at ")[2])


def test_an_error_is_given_one_place_only() -> None:
    text = misuse(
        lambda: jit(lambda a: grad(lambda b: closed_call(lambda c: c + M)(b).sum())(a))(X),
        ValueError,
    )
    assert text.count("\n  at ") == 1


def test_errors_of_the_users_own_stay_as_they_are() -> None:
    def mine(x: Any) -> Any:
        raise ValueError("mine")

    for transform in (jit, grad, vmap, make_jaxpr, closed_call):
        assert misuse(lambda transform=transform: transform(mine)(X), ValueError) == "mine"  # type: ignore[misc]

"""Bad input: each error has the right type, names the argument, what was expected and given, and the line."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    ConcretizationError,
    EscapedTracerError,
    RuleError,
    TracerError,
    closed_call,
    ds,
    grad,
    jit,
    make_jaxpr,
    tree,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_structure,
    vmap,
)
from fiveloop.core.errors import DonatedError
from fiveloop.core.extend import as_value, to_array, transpose_jaxpr
from fiveloop.core.ir.source import function_source
from fiveloop.core.primitives.elementwise import select, shift_left
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.misuse import assert_misuse, assert_within, raised

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
        "transpose: expected each axis once in `axes`, got (0, 0)",
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
        "jit of <lambda>: argument `x`: the integer 1180591620717411303424 does not fit int64",
    ),
    "negative power of integers": (
        lambda: K**-1,
        ValueError,
        "power: integers have no negative integer powers, got i32[4] ** -1",
    ),
    "modulus": (
        lambda: pow(X, 2, 3),
        TypeError,
        "pow: expected no modulus for arrays, got 3; take the remainder, `x ** y % z`",
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
        "use `ds(start, size)` for a run-time start, or if it comes from an argument, name that one in "
        "static_argnums",
    ),
    "a step of zero": (
        lambda: X[::0],
        ValueError,
        "expected the step of a slice of axis 0 not to be 0",
    ),
    "a traced size of a span": (
        lambda: jit(lambda n: X[ds(0, n)])(2),
        TypeError,
        "ds: expected an int as size, got Traced<i32*[]>; sizes must be known while tracing: if it comes from an "
        "argument, name that one in static_argnums",
    ),
    "a negative size of a span": (
        lambda: X[ds(0, -1)],
        ValueError,
        "ds: expected size >= 0 and stride >= 1, got -1 and 1",
    ),
    "an update without a place": (
        lambda: X.at.set(1.0),  # type: ignore[attr-defined]  # that is the point
        AttributeError,
        "`x.at` has no attribute 'set'; choose a place first: `x.at[index].set(v)`",
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
    "update of 64 bits": (
        lambda: X.at[0].set(np.ones((), np.float64)),
        TypeError,
        "cannot write a value of dtype f64 into an array of dtype f32 without loss; convert it first: "
        "`v.astype('float32')`",
    ),
    "update of 64 bits in jit": (
        lambda: jit(lambda x: x.at[0].add(np.ones((), np.int64)))(K),
        TypeError,
        "cannot write a value of dtype i64 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
    "update with a complex number": (
        lambda: X.at[0].multiply(1j),
        TypeError,
        "cannot write a value of dtype c64 into an array of dtype f32 without loss; convert it first: "
        "`v.real.astype('float32')`",
    ),
    "update of a higher dtype": (
        lambda: K.at[0].set(1.5),
        TypeError,
        "cannot write a value of dtype f32 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
}
TABLES = {"operations": OPERATIONS, "indexing": INDEXING}
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


CONTROL = "use `cond`, `where` or `while_loop` for control flow on traced values"
SIZES = "sizes and bounds must be known while tracing: if it comes from an argument, name that one in static_argnums"
TABLE = (
    "to index a NumPy array or a list with it, `fiveloop.numpy.asarray(table)[i]`; to slice at it, "
    "`x[ds(start, size)]`; to loop, `fori_loop`"
)
NUMPY = (
    "use the function of fiveloop.numpy in place of NumPy's, or `x.astype(dtype)` to convert; to index a NumPy "
    "array with it, `fiveloop.numpy.asarray(table)[i]`"
)
CONVERSIONS: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "bool": (
        lambda x: bool(x.sum() > 0),
        "Traced<bool[]>",
        f"a bool while {{}} is traced; {CONTROL}",
    ),
    "int": (
        lambda x: int(x.sum()),
        "Traced<f32[]>",
        f"an int while {{}} is traced; {SIZES}; else keep it an array",
    ),
    "float": (
        lambda x: float(x.sum()),
        "Traced<f32[]>",
        "a float while {} is traced; keep it an array; if it must be known while tracing: if it comes from an "
        "argument, name that one in static_argnums",
    ),
    "complex": (
        lambda x: complex(x.sum()),
        "Traced<f32[]>",
        "a complex number while {} is traced; keep it an array",
    ),
    "index": (
        lambda x: [0, 1][x.sum().astype("int32")],
        "Traced<i32[]>",
        f"an index or a size while {{}} is traced; {SIZES}; {TABLE}",
    ),
    "range": (
        lambda x: [0 for _ in range(x.sum().astype("int32"))],
        "Traced<i32[]>",
        f"an index or a size while {{}} is traced; {SIZES}; {TABLE}",
    ),
    "item": (
        lambda x: x.sum().item(),
        "Traced<f32[]>",
        "a Python scalar while {} is traced; keep it an array, or return it from the function",
    ),
    "NumPy": (
        lambda x: np.asarray(x),
        "Traced<f32[4]>",
        f"a NumPy array while {{}} is traced; {NUMPY}",
    ),
    "index of a NumPy array": (
        lambda x: np.arange(4)[x.sum().astype("int32")],
        "Traced<i32[]>",
        f"a NumPy array while {{}} is traced; {NUMPY}",
    ),
    "a part of a NumPy array": (
        lambda x: np.arange(4)[: x.sum().astype("int32")],
        "Traced<i32[]>",
        f"an index or a size while {{}} is traced; {SIZES}; {TABLE}",
    ),
    "pickle": (
        lambda x: pickle.dumps(x),
        "Traced<f32[4]>",
        "pickled while {} is traced; return it from the function, and pickle the result",
    ),
    "format": (
        lambda x: f"{x.sum():.2f}",
        "Traced<f32[]>",
        "text in the format '.2f' while {} is traced; use `debug_print(\"{{:.2f}}\", x)` of fiveloop.state, which "
        "prints when the program runs, or return it",
    ),
    "list": (
        lambda x: x.tolist(),
        "Traced<f32[4]>",
        "a list while {} is traced; keep it an array, or return it from the function",
    ),
    "in": (
        lambda x: 1.0 in x,
        "Traced<bool[]>",
        "a bool while {} is traced; use `cond`, `where` or `while_loop` for control flow on traced values",
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
        assert came in given
        assert_within(use, place)


@pytest.mark.parametrize("transform", [jit, closed_call])
def test_a_tracer_that_escaped_is_not_handed_on(transform: Any) -> None:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x

    jit(keep)(X)
    text = misuse(lambda: transform(lambda x: x)(kept[0]), EscapedTracerError)
    assert text.startswith(f"a traced value of type {as_value(X).aval} that came in as an argument")


def test_the_line_is_the_users_also_below_numpy() -> None:
    def invert(x: Any) -> Any:
        return np.linalg.inv(x)

    error = raised(lambda: jit(invert)(np.eye(2)))
    assert "was asked to be a NumPy array" in str(error)
    assert_within(invert, str(error).partition("\n  at ")[2])


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


def test_a_donated_array_says_so() -> None:
    x = to_array(as_value(X))
    jit(lambda a: a + 1, donate_argnums=0)(x)
    assert repr(x) == f"Array(<donated>, shape={X.shape}, dtype={X.dtype.name})"
    text = misuse(lambda: x + 1, DonatedError)
    shape = ",".join(map(str, X.shape))
    assert text.startswith(
        f"add: argument 0, {X.dtype.name}[{shape}], was deleted or donated; copy it before donating it"
    )
    text = misuse(x.block_until_ready, DonatedError)
    assert text.startswith(f"expected an array with contents, got one of shape {X.shape}")


class Tracer:
    """Stands for jax's class of this name, which says that it has an array, and has none."""

    __jax_array__ = None

    def __repr__(self) -> str:
        return "JitTracer(float32[3])"


Tracer.__module__ = "jax._src.core"


@pytest.mark.parametrize(
    "use",
    [
        jit(lambda x: x),
        lambda x: to_array(as_value(X)) + x,
        lambda x: as_value(X)[x],
        grad(lambda x: x),
    ],
)
def test_a_value_that_jax_traces_says_what_to_do(use: Any) -> None:
    text = misuse(lambda: use(type("DynamicJaxprTracer", (Tracer,), {})()), TracerError)
    assert (
        "must be a value of fiveloop, got JitTracer(float32[3]), which a transform of jax is tracing; use"
        in text
    )
    assert "`jax.pure_callback`\n  at " in text


def calls_itself(x: Any) -> Any:
    return 1.0 + calls_itself(x)


def is_jitted_in_itself(x: Any) -> Any:
    return jit(is_jitted_in_itself)(x)


@pytest.mark.parametrize("transform", [jit, grad, vmap, make_jaxpr, closed_call])
@pytest.mark.parametrize("fun", [calls_itself, is_jitted_in_itself])
def test_a_function_that_calls_itself_without_end_is_named(transform: Any, fun: Any) -> None:
    text = misuse(lambda: transform(fun)(X if transform is vmap else 1.0), RecursionError)
    assert re.search(
        rf"while {fun.__name__} at .*test_errors.py:\d+ is traced: a function calls itself", text
    )
    assert re.search(
        rf"\n  at .*test_errors.py:{fun.__code__.co_firstlineno + 1} \({fun.__name__}\)$", text
    )


NO_ORDER = (
    "expected dict keys that can be put in order, got 1, 'a'; "
    "'<' not supported between instances of 'str' and 'int'"
)


UNORDERED = [1, (2, {1: 1.0, "a": 2.0})]


@pytest.mark.parametrize(
    "call",
    [
        lambda: tree_map(lambda x: x, UNORDERED),
        lambda: tree.map(lambda x: x, UNORDERED),
        lambda: tree_flatten(UNORDERED),
        lambda: tree_leaves(UNORDERED),
        lambda: tree_structure(UNORDERED),
    ],
)
def test_keys_that_have_no_order_are_named(call: Callable[[], object]) -> None:
    assert_misuse(call, TypeError, f"a tree[1][1]: {NO_ORDER}")


def test_trees_that_do_not_fit_are_named() -> None:
    given = "tree_map: tree 2 does not fit: expected list of length 2, got list of length 1"
    assert_misuse(lambda: tree_map(lambda x, y: x, [1, 2], [1]), ValueError, given)

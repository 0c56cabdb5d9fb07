"""Bad input to loops and branches: the type of each error, its message, and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import EscapedTracerError, jit
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.ir.source import function_source
from fiveloop.core.prims import concatenate
from fiveloop.loops import cond, for_loop, fori_loop, map, scan, switch, while_loop
from fiveloop.state import new_ref
from fiveloop.testing.core.misuse import assert_misuse, place_in

X = to_array(as_value(np.arange(4, dtype=np.float32)))
M = to_array(as_value(np.ones((3, 2), np.float32)))
K = to_array(as_value(np.arange(4, dtype=np.int32)))
R = new_ref(X)

Case = tuple[Callable[[], object], type[Exception], str]


class Thing:
    """Not an array."""

    def __repr__(self) -> str:
        return "Thing()"


def nothing(i: Any, refs: Any) -> None:
    """A body that does nothing."""


def returns(i: Any, refs: Any) -> Any:
    return refs[i]


def same(carry: Any, x: Any) -> Any:
    return carry, x


def replaced(c: Any, x: Any) -> Any:
    return M, x


def widened(carry: Any, x: Any) -> Any:
    return {"a": carry["a"].astype("float64")}, x


def wrapped(carry: Any, x: Any) -> Any:
    return (carry,), x


def alone(carry: Any, x: Any) -> Any:
    return [carry, x, x]


def double(x: Any) -> Any:
    return x * 2


def grow(x: Any) -> Any:
    return x.astype("float64")


def lengthen(x: Any) -> Any:
    return concatenate([x, x], 0)


def pack(x: Any) -> Any:
    return {"a": x}


def thing(*args: Any) -> Any:
    return Thing()


def pack_two(x: Any) -> Any:
    return {"a": x[:2]}


def first(carry: Any, x: Any) -> Any:
    return carry


def two_rows(carry: Any, x: Any) -> Any:
    return carry[:2]


def two_letters(carry: Any, x: Any) -> Any:
    return "cy"


def triple(carry: Any, x: Any) -> Any:
    return carry, x, x


def thing_of_none() -> Any:
    return Thing()


def returns_ref() -> Any:
    return R


def ref_of(x: Any) -> Any:
    return R


def small(x: Any) -> Any:
    return (x < 3).all()


NO_REF = "must be an array, got a Ref of type Ref{f32[4]}; its contents are `ref[...]`"
STEPS = "must be an integer, got"
FOR: dict[str, Case] = {
    "a body that returns something": (
        lambda: for_loop(3, returns, X),
        TypeError,
        "for_loop: the body works on its Refs and must return None, got Traced<f32[]> from "
        f"{function_source(returns)}; write results to a Ref, or use `scan`",
    ),
    "a body of one argument": (
        lambda: for_loop(3, double, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"for_loop: the body must take (i, refs), but `{function_source(double)}` takes (x)",
    ),
    "a Ref written into a Ref": (
        lambda: for_loop(3, lambda i, r: r.__setitem__(..., R), X),
        TypeError,
        "the value written must be an array, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    ),
    "a method that no Ref has": (
        lambda: for_loop(3, lambda i, r: r.append(1.0), X),
        AttributeError,
        "a value of type Ref{f32[4]} has no attribute 'append'",
    ),
    "no function": (
        lambda: for_loop(3, None, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "for_loop: body: expected a function, got None of type NoneType",
    ),
    "negative steps": (
        lambda: for_loop(-1, nothing, X),
        ValueError,
        "for_loop: nsteps must not be negative, got -1",
    ),
    "steps of another type": (
        lambda: for_loop(2.5, nothing, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"for_loop: nsteps {STEPS} 2.5",
    ),
    "traced steps": (
        lambda: jit(lambda n: for_loop(n, nothing, X))(2.5),
        TypeError,
        "for_loop: nsteps must be an integer scalar, got f32*[]",
    ),
    "unroll": (
        lambda: for_loop(3, nothing, X, unroll=-1),
        ValueError,
        'for_loop: unroll must be an integer of at least 0, True, False or "auto", got -1',
    ),
    "a leaf that is no array": (
        lambda: for_loop(3, nothing, {"a": Thing()}),
        TypeError,
        "for_loop: init_state['a'] must be an array or a scalar, got Thing() of type Thing",
    ),
    "an index in the body": (
        lambda: for_loop(3, lambda i, r: r.__setitem__((i, 0), 1.0), X),
        IndexError,
        "expected at most 1 indices for an array of shape (4,), got 2 in (Traced<i32[]>, 0)",
    ),
    "a known index out of bounds in the body": (
        lambda: for_loop(3, lambda i, r: r.__setitem__(7, 1.0), X),
        IndexError,
        "index 7 is out of bounds for axis 0 of size 4",
    ),
    "a shape in the body": (
        lambda: for_loop(3, lambda i, r: r.__setitem__(i, M), X),
        ValueError,
        "cannot write a value of shape (3, 2) where the index selects shape (): it does not broadcast to it",
    ),
    "a dtype in the body": (
        lambda: for_loop(3, lambda i, r: r.__setitem__(i, X[i]), K),
        TypeError,
        "cannot write a value of dtype f32 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
}
SCAN: dict[str, Case] = {
    "a carry whose dtype changes": (
        lambda: scan(widened, {"a": X}, X),
        TypeError,
        "scan: the carry must keep its types, but carry['a'] goes in as f32[4] and comes out as f64[4], made at "
        f"{place_in(widened)}; make init of the type that the function returns, or convert in the function with astype",
    ),
    "a carry whose shape changes": (
        lambda: scan(replaced, X, X),
        TypeError,
        "scan: the carry must keep its types, but carry goes in as f32[4] and comes out as f32[3,2], given back by "
        f"`{function_source(replaced)}`; make init of the shape that the function returns; an array that grows needs "
        "its last size from the beginning: write to it at indices",
    ),
    "a carry whose structure changes": (
        lambda: scan(wrapped, X, X),
        TypeError,
        f"scan: the carry must keep its structure, but in `{function_source(wrapped)}` carry goes in as f32[4] and "
        "comes out as a tuple of 1",
    ),
    "a list of three": (
        lambda: scan(alone, X, X),
        TypeError,
        f"scan: the function must return a pair (carry, y), but `{function_source(alone)}` returns a list of 3",
    ),
    "no pair but an array": (
        lambda: scan(first, X, X),
        TypeError,
        f"scan: the function must return a pair (carry, y), but `{function_source(first)}` returns f32[4]",
    ),
    "nothing": (
        lambda: scan(nothing, X, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"scan: the function must return a pair (carry, y), but `{function_source(nothing)}` returns None; "
        "does the function return?",
    ),
    "no pair but an array of two": (
        lambda: scan(two_rows, X, X),
        TypeError,
        f"scan: the function must return a pair (carry, y), but `{function_source(two_rows)}` returns f32[2]",
    ),
    "no pair but a text of two": (
        lambda: scan(two_letters, X, X),
        TypeError,
        f"scan: the function must return a pair (carry, y), but `{function_source(two_letters)}` returns 'cy' of type "
        "str",
    ),
    "a triple": (
        lambda: scan(triple, X, X),
        TypeError,
        f"scan: the function must return a pair (carry, y), but `{function_source(triple)}` returns a tuple of 3",
    ),
    "too few arguments": (
        lambda: scan(double, X, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"scan: the function must take (carry, x), but `{function_source(double)}` takes (x)",
    ),
    "a Ref as an output": (
        lambda: scan(lambda c, x: (c, {"y": R}), X, X),
        TypeError,
        f"scan: y['y'] {NO_REF}",
    ),
    "a Ref as the carry returned": (
        lambda: scan(lambda c, x: (R, x), X, X),  # type: ignore[arg-type, return-value]  # that is the point
        TypeError,
        f"scan: the carry returned {NO_REF}",
    ),
    "a negative length": (
        lambda: scan(same, X, length=-2),
        ValueError,
        "scan: length must not be negative, got -2",
    ),
    "a length that is no integer": (
        lambda: scan(same, X, length=2.5),  # type: ignore[call-overload]  # that is the point
        TypeError,
        f"scan: length {STEPS} 2.5",
    ),
    "fori_loop: too few arguments": (
        lambda: fori_loop(0, 3, double, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"fori_loop: the body must take (i, val), but `{function_source(double)}` takes (x)",
    ),
    "fori_loop: nothing returned": (
        lambda: fori_loop(0, 3, nothing, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"fori_loop: the carry must keep its structure, but in `{function_source(nothing)}` carry goes in as f32[4] "
        "and comes out as None; does the function return?",
    ),
    "map: arguments": (
        lambda: map(same, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"map: the function must take (x), but `{function_source(same)}` takes (carry, x)",
    ),
    "map: batch_size": (
        lambda: map(double, X, batch_size=2.5),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "map: batch_size must be an integer of at least 0, got 2.5 of type float",
    ),
    "map: lengths": (
        lambda: map(lambda x: x, {"a": X, "b": M}, batch_size=2),
        ValueError,
        "map: leading axes differ: xs['a'] has 4, xs['b'] has 3",
    ),
    "lengths": (
        lambda: scan(same, 0.0, {"a": X, "b": M}),
        ValueError,
        "scan: leading axes differ: xs['a'] has 4, xs['b'] has 3",
    ),
    "length": (
        lambda: scan(same, 0.0, X, length=3),
        ValueError,
        "scan: leading axes differ: xs has 4, length has 3",
    ),
    "no length": (
        lambda: scan(same, 0.0),
        ValueError,
        "scan: without xs, length must say how many steps there are",
    ),
    "a scalar": (
        lambda: scan(same, 0.0, {"a": 1.0}),
        ValueError,
        "scan: xs['a'] has no axis to scan over, its type is f32*[]",
    ),
    "a leaf of init": (
        lambda: scan(same, [Thing()], X),
        TypeError,
        "scan: init[0] must be an array or a scalar, got Thing() of type Thing",
    ),
    "a leaf of xs": (
        lambda: scan(same, 0.0, [Thing()]),
        TypeError,
        "scan: xs[0] must be an array or a scalar, got Thing() of type Thing",
    ),
    "an output": (
        lambda: scan(lambda c, x: (c, {"y": Thing()}), 0.0, X),
        TypeError,
        "scan: y['y'] must be an array or a scalar, got Thing() of type Thing",
    ),
    "a Ref of inputs that is carried": (
        lambda: scan(same, R, [X, R]),
        ValueError,
        "scan: carry and xs[1] are one Ref{f32[4]}, so that what is written through one would change the other; pass "
        "it once",
    ),
    "a Ref of inputs twice": (
        lambda: scan(same, 0.0, (R, R)),
        ValueError,
        "scan: xs[0] and xs[1] are one Ref{f32[4]}, so that what is written through one would change the other; pass "
        "it once",
    ),
    "a slice of a Ref as an output": (
        lambda: scan(same, 0.0, R),
        TypeError,
        "scan: y must be an array, got a Ref of type Ref{f32[]}; its contents are `ref[...]`",
    ),
    "no function": (
        lambda: scan(3, 0.0, X),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "scan: f: expected a function, got 3 of type int",
    ),
    "bounds": (
        lambda: fori_loop(0, X, lambda i, v: v, 0.0),
        TypeError,
        "fori_loop: upper must be an integer or a float scalar, got f32[4]",
    ),
    "map over a scalar": (
        lambda: map(double, 1.0, batch_size=2),
        ValueError,
        "map: xs has no axis to map over, its type is f32*[]",
    ),
    "map over a scalar at once": (
        lambda: map(double, 1.0),
        ValueError,
        "map: xs has no axis to map over, its type is f32*[]",
    ),
}
BRANCHES: dict[str, Case] = {
    "pred": (
        lambda: cond(X > 0, double, double, X),
        TypeError,
        "cond: pred must be a bool scalar, got bool[4]; reduce it with `all` or `any`, or use `where` to choose "
        "element by element",
    ),
    "results of other types": (
        lambda: cond(True, double, grow, X),
        TypeError,
        f"cond: the branches must return the same types, but from true_fun `{function_source(double)}` and "
        f"false_fun `{function_source(grow)}`, result is f32[4] and f64[4]; convert in a branch with astype, or make "
        "the shapes equal",
    ),
    "results of another structure": (
        lambda: cond(True, double, pack, X),
        TypeError,
        f"cond: the branches must return the same structure, but from true_fun `{function_source(double)}` and "
        f"false_fun `{function_source(pack)}`, result is f32[4] and a dict {{'a'}}",
    ),
    "a leaf of another type in a switch": (
        lambda: switch(0, [pack, pack_two], X),
        TypeError,
        f"switch: the branches must return the same types, but from branches[0] `{function_source(pack)}` and "
        f"branches[1] `{function_source(pack_two)}`, result['a'] is f32[4] and f32[2]; convert in a branch with "
        "astype, or make the shapes equal",
    ),
    "too few arguments": (
        lambda: cond(True, double, thing_of_none, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"cond: false_fun must take the 1 operand, but `{function_source(thing_of_none)}` takes ()",
    ),
    "too many arguments": (
        lambda: switch(0, [same, double], X, X),  # type: ignore[arg-type, call-arg]  # that is the point
        TypeError,
        f"switch: branches[1] must take the 2 operands, but `{function_source(double)}` takes (x)",
    ),
    "a Ref as a result": (
        lambda: cond(True, returns_ref, returns_ref),
        TypeError,
        f"cond: the result of {function_source(returns_ref)}, at result {NO_REF}",
    ),
    "a branch in place of branches": (
        lambda: switch(0, double, X),  # type: ignore[call-overload]  # that is the point
        TypeError,
        f"switch: branches must be a list or a tuple of functions, got {double!r} of type function",
    ),
    "a result that is no array": (
        lambda: cond(True, thing, thing, X),
        TypeError,
        f"cond: the result of {function_source(thing)}, at result must be an array or a scalar, got Thing() of "
        "type Thing",
    ),
    "an operand that is no array": (
        lambda: cond(True, double, double, Thing()),
        TypeError,
        "cond: operands[0] must be an array or a scalar, got Thing() of type Thing",
    ),
    "no function": (
        lambda: cond(True, double, 3, X),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "cond: false_fun: expected a function, got 3 of type int",
    ),
    "index": (
        lambda: switch(1.5, [double], X),
        TypeError,
        "switch: index must be an integer scalar, got f32*[]",
    ),
    "no branches": (
        lambda: switch(0, [], X),
        ValueError,
        "switch: expected at least one branch, got none",
    ),
}
WHILE: dict[str, Case] = {
    "a value whose dtype changes": (
        lambda: while_loop(small, grow, X),
        TypeError,
        f"while_loop: the body must keep the types of the value, but in `{function_source(grow)}` val goes in "
        f"as f32[4] and comes out as f64[4], made at {place_in(grow)}; make init_val of the type that the body "
        "returns, or convert in the body with astype",
    ),
    "a value whose shape changes": (
        lambda: while_loop(small, lengthen, X),
        TypeError,
        f"while_loop: the body must keep the types of the value, but in `{function_source(lengthen)}` val goes in "
        f"as f32[4] and comes out as f32[8], made at {place_in(lengthen)}; make init_val of the shape that the body "
        "returns; an array that grows needs its last size from the beginning: write to it at indices",
    ),
    "a value whose structure changes": (
        lambda: while_loop(small, pack, X),
        TypeError,
        f"while_loop: the body must keep the structure of the value, but in `{function_source(pack)}` val goes in as "
        "f32[4] and comes out as a dict {'a'}",
    ),
    "a condition that is no bool": (
        lambda: while_loop(double, double, X),
        TypeError,
        f"while_loop: cond_fun must return a bool scalar, but `{function_source(double)}` returns f32[4]; "
        "compare (`x > 0`), or reduce with `all` or `any`",
    ),
    "a leaf": (
        lambda: while_loop(small, double, [Thing()]),
        TypeError,
        "while_loop: init_val[0] must be an array or a scalar, got Thing() of type Thing",
    ),
    "no function": (
        lambda: while_loop(small, 3, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "while_loop: body_fun: expected a function, got 3 of type int",
    ),
    "too few arguments": (
        lambda: while_loop(thing_of_none, double, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"while_loop: cond_fun must take (val), but `{function_source(thing_of_none)}` takes ()",
    ),
    "too many arguments": (
        lambda: while_loop(small, same, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"while_loop: body_fun must take (val), but `{function_source(same)}` takes (carry, x)",
    ),
    "a Ref as the value returned": (
        lambda: while_loop(small, ref_of, X),
        TypeError,
        f"while_loop: the result of {function_source(ref_of)}, at val {NO_REF}",
    ),
}
TABLES = {"for": FOR, "scan": SCAN, "branches": BRANCHES, "while": WHILE}
CASES = [
    pytest.param(*case, id=f"{t}: {name}")
    for t, table in TABLES.items()
    for name, case in table.items()
]


@pytest.mark.parametrize(("call", "kind", "message"), CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)


def test_a_value_that_escaped_from_a_body() -> None:
    kept: list[Any] = []

    def body(i: Any, r: Any) -> None:
        kept.append(r[i])

    for_loop(3, body, X)
    line, file = body.__code__.co_firstlineno, body.__code__.co_filename
    assert_misuse(
        lambda: kept[0] + 1,
        EscapedTracerError,
        f"a traced value of type f32[] made at {file}:{line + 1} (body) while tracing body at {file}:{line} has "
        "escaped: that function has returned, so the value no longer exists; return it from the function instead "
        "of storing it",
    )

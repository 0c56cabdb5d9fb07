"""Bad input to the loops that are written on others: their own names in the messages, and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit
from fiveloop.core.ir.source import function_source
from fiveloop.loops import (
    Progress,
    accumulate_grads,
    associative_scan,
    cond,
    cumsum,
    for_loop,
    fori_loop,
    map,
    scan,
    switch,
    while_loop,
)
from fiveloop.state import new_ref
from fiveloop.testing.core.misuse import assert_misuse, place_in

X = np.arange(4, dtype=np.float32)
M = np.ones((3, 2), np.float32)
R = new_ref(X)

Case = tuple[Callable[[], object], type[Exception], str]


def one(x: Any) -> Any:
    return x


def two(c: Any, x: Any) -> Any:
    return c, x


def three(i: Any, refs: Any, more: Any) -> None:
    """A body with one argument too many."""


def nothing(*args: Any) -> None:
    """A function that does not return anything."""


def wrap(i: Any, c: Any) -> Any:
    return (c,)


def widen(i: Any, c: Any) -> Any:
    return {"a": c["a"].astype("float64")}


def keep(i: Any, c: Any) -> Any:
    return c


def other(i: Any, c: Any) -> Any:
    return {"a": X}


def ref(i: Any, c: Any) -> Any:
    return R


def read(i: Any, c: Any) -> Any:
    return c[...]


def aux_of(aux: Any) -> Callable[..., Any]:
    """A loss with something beside it."""

    def with_aux(w: Any, x: Any) -> Any:
        return (w * x).sum(), aux

    return with_aux


def text(*args: Any) -> Any:
    return "text"


def always() -> Any:
    return True


def loss(w: Any, x: Any) -> Any:
    return (w * x["a"]).sum()


def traced(body: Any, init: Any) -> Callable[[], object]:
    """A fori_loop whose bound is not known."""
    return lambda: jit(lambda n: fori_loop(0, n, body, init))(2)


GROWN = (
    "fori_loop: the carry must keep its types, but carry['a'] goes in as i32*[] and comes out as f32[4], given back by "
    f"`{function_source(other)}`; make init_val of the shape that the function returns; an array that grows needs its "
    "last size from the beginning: write to it at indices"
)
TYPES = (
    "fori_loop: the carry must keep its types, but carry['a'] goes in as f32[4] and comes out as f64[4], made at "
    f"{place_in(widen)}; make init_val of the type that the function returns, or convert in the function with astype"
)
NO_REF = "must be an array, got a Ref of type Ref{f32[4]}; its contents are `ref[...]`"
STRUCTURE = "fori_loop: the carry must keep its structure, but in"
WRAPPED = "carry goes in as f32[4] and comes out as a tuple of 1"
HALVES = "microbatches cut into equal parts"
UNROLL = 'unroll must be an integer of at least 0, True, False or "auto", got'

CASES: dict[str, Case] = {
    "for_loop: steps": (
        lambda: for_loop(X, keep, X),
        TypeError,
        "for_loop: nsteps must be an integer, got array([0., 1., 2., 3.], dtype=float32)",
    ),
    "for_loop: a body of three arguments": (
        lambda: for_loop(3, three, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"for_loop: the body must take (i, refs), but `{function_source(three)}` takes (i, refs, more)",
    ),
    "for_loop: unroll": (
        lambda: for_loop(3, nothing, X, unroll=1.5),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"for_loop: {UNROLL} 1.5 of type float",
    ),
    "scan: lengths of a tree": (
        lambda: scan(two, 0.0, {"a": X, "b": [M]}),
        ValueError,
        "scan: leading axes differ: xs['a'] has 4, xs['b'][0] has 3",
    ),
    "scan: a condition of no arguments": (
        lambda: scan(two, X, X, until=always),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"scan: until must take (carry), but `{function_source(always)}` takes ()",
    ),
    "scan: a condition that is none": (
        lambda: scan(two, X, X, until=3),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "scan: until: expected a function, got 3 of type int",
    ),
    "scan: a condition without a result": (
        lambda: scan(two, X, X, until=nothing),
        TypeError,
        f"scan: until must return a bool scalar, but `{function_source(nothing)}` returns None of type NoneType; "
        "compare (`x > 0`), or reduce with `all` or `any`",
    ),
    "scan: unroll": (
        lambda: scan(two, X, X, unroll="all"),  # type: ignore[call-overload]  # that is the point
        ValueError,
        f"scan: {UNROLL} 'all'",
    ),
    "fori_loop: no function": (
        lambda: fori_loop(0, 3, None, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "fori_loop: body_fun: expected a function, got None of type NoneType",
    ),
    "fori_loop: a fractional bound": (
        lambda: fori_loop(0.5, 2, keep, X),
        ValueError,
        "fori_loop: lower must be a whole number where it is known, got 0.5; round it",
    ),
    "fori_loop: a bound that is no number": (
        lambda: fori_loop(0, "3", keep, X),
        TypeError,
        "fori_loop: upper must be an array or a scalar, got '3' of type str",
    ),
    "fori_loop: types": (lambda: fori_loop(0, 3, widen, {"a": X}), TypeError, TYPES),
    "fori_loop: structure": (
        lambda: fori_loop(0, 3, wrap, X),
        TypeError,
        f"{STRUCTURE} `{function_source(wrap)}` {WRAPPED}",
    ),
    "fori_loop: unroll": (
        lambda: fori_loop(0, 3, keep, X, unroll=-2),
        ValueError,
        f"fori_loop: {UNROLL} -2",
    ),
    "map: no function": (
        lambda: map(3, X, batch_size=2),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "map: f: expected a function, got 3 of type int",
    ),
    "map: a scalar": (
        lambda: map(one, 1.0),
        ValueError,
        "map: xs has no axis to map over, its type is f32*[]",
    ),
    "map: lengths": (
        lambda: map(one, {"a": X, "b": M}),
        ValueError,
        "map: leading axes differ: xs['a'] has 4, xs['b'] has 3",
    ),
    "map: arguments of a batch": (
        lambda: map(two, X, batch_size=2),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"map: the function must take (x), but `{function_source(two)}` takes (c, x)",
    ),
    "map: a result": (
        lambda: map(text, X),
        TypeError,
        "map: y must be an array or a scalar, got 'text' of type str",
    ),
    "map: a result of a batch": (
        lambda: map(text, X, batch_size=2),
        TypeError,
        f"the result of {function_source(text)} must be an array or a scalar, got 'text' of type str",
    ),
    "map: batch_size": (
        lambda: map(one, X, batch_size=True),
        TypeError,
        "map: batch_size must be an integer of at least 0, got True of type bool",
    ),
    "while_loop: a condition that is a number": (
        lambda: while_loop(one, one, 0),
        TypeError,
        f"while_loop: cond_fun must return a bool scalar, but `{function_source(one)}` returns i32*[]; compare "
        "(`x > 0`), or reduce with `all` or `any`",
    ),
    "while_loop: a body without a result": (
        lambda: while_loop(lambda v: v < 3, nothing, 0),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"while_loop: the body must keep the structure of the value, but in `{function_source(nothing)}` val goes in "
        "as i32*[] and comes out as None; does the function return?",
    ),
    "associative_scan: no function": (
        lambda: associative_scan(3, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "associative_scan: fn: expected a function, got 3 of type int",
    ),
    "associative_scan: arguments": (
        lambda: associative_scan(one, X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"associative_scan: fn must take (a, b), but `{function_source(one)}` takes (x)",
    ),
    "associative_scan: a Ref": (
        lambda: associative_scan(two, R),
        TypeError,
        "associative_scan: elems must be an array, got a Ref of type Ref{f32[4]}; read it: `ref[...]`",
    ),
    "associative_scan: a scalar": (
        lambda: associative_scan(two, 1.0),
        ValueError,
        "associative_scan: axis must be an axis of elems, of type f32*[], got 0",
    ),
    "cumsum: axis": (
        lambda: cumsum(X, axis=2),
        ValueError,
        "cumsum: expected `axis` in [-1, 1) for 1 axes, got 2",
    ),
    "accumulate_grads: batches": (
        lambda: accumulate_grads(loss, 2)(1.0, {"a": X, "b": np.ones(6)}),
        ValueError,
        "accumulate_grads of loss: first axes differ: argument `x`['a'] has 4, argument `x`['b'] has 6",
    ),
    "accumulate_grads: a scalar": (
        lambda: accumulate_grads(loss, 2)(1.0, {"a": 1.0}),
        ValueError,
        f"accumulate_grads of loss: argument `x`['a'] must have a first axis that 2 {HALVES}, got f32*[]",
    ),
    "accumulate_grads: what is differentiated": (
        lambda: accumulate_grads(loss, 2)({"w": "text"}, {"a": X}),
        TypeError,
        "accumulate_grads of loss: argument `w`['w'] must be an array or a scalar, got 'text' of type str",
    ),
    "accumulate_grads: an auxiliary result": (
        lambda: accumulate_grads(aux_of(["text"]), 2, has_aux=True)(1.0, X),
        TypeError,
        "accumulate_grads: the auxiliary result of with_aux, at result[0] must be an array or a scalar, got 'text' of "
        "type str",
    ),
    "accumulate_grads: a Ref as auxiliary result": (
        lambda: accumulate_grads(aux_of({"r": R}), 2, has_aux=True)(1.0, X),
        TypeError,
        f"accumulate_grads: the auxiliary result of with_aux, at result['r'] {NO_REF}",
    ),
    "for_loop: True steps": (
        lambda: for_loop(True, nothing, X),
        TypeError,
        "for_loop: nsteps must be an integer, got True",
    ),
    "map: nothing": (
        lambda: map(one, ()),
        ValueError,
        "map: xs must hold at least one array, got PyTreeDef(())",
    ),
    "fori_loop: the first value": (
        lambda: fori_loop(0, 3, keep, ["text"]),
        TypeError,
        "fori_loop: init_val[0] must be an array or a scalar, got 'text' of type str",
    ),
    "accumulate_grads: microbatches": (
        lambda: accumulate_grads(loss, 1.5),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "accumulate_grads: microbatches must be an integer of at least 1, got 1.5 of type float",
    ),
    "cond: a predicate of many": (
        lambda: cond(X, lambda: 1, lambda: 2),
        TypeError,
        "cond: pred must be a bool scalar, got f32[4]; reduce it with `all` or `any`, or use `where` to choose element "
        "by element",
    ),
    "cond: a number for a predicate": (
        lambda: cond(2, lambda: 1, lambda: 2),
        TypeError,
        "cond: pred must be a bool scalar, got i32*[]; compare (`x != 0`)",
    ),
    "cond: a fraction for a predicate": (
        lambda: cond(np.float16(0.5), lambda: 1, lambda: 2),
        TypeError,
        "cond: pred must be a bool scalar, got f16[]; compare (`x != 0`)",
    ),
    "cond: a complex predicate, traced": (
        lambda: jit(lambda z: cond(z, lambda: 1, lambda: 2))(1j),
        TypeError,
        "cond: pred must be a bool scalar, got c64*[]; compare (`x != 0`)",
    ),
    "cond: operand, and operands": (
        lambda: cond(True, lambda x: x, lambda x: x, 1, operand=2),  # type: ignore[call-overload]
        TypeError,
        "cond: operands are given by position, one by one, got `operand=`; write `cond(pred, true_fun, false_fun, x, "
        "y)`",
    ),
    "cond: no predicate": (
        lambda: cond(None, lambda: 1, lambda: 2),
        TypeError,
        "cond: pred must be an array or a scalar, got None of type NoneType",
    ),
    "cond: a predicate in a Ref": (
        lambda: cond(new_ref(True), lambda: 1, lambda: 2),
        TypeError,
        "cond: pred must be a scalar, got a Ref of type Ref{bool[]}; its contents are `ref[...]`",
    ),
    "switch: an index in a Ref": (
        lambda: switch(new_ref(1), [one, one], X),
        TypeError,
        "switch: index must be a scalar, got a Ref of type Ref{i32[]}; its contents are `ref[...]`",
    ),
    "switch: indices": (
        lambda: switch(np.array([0, 1], np.int32), [one, one], X),
        TypeError,
        "switch: index must be an integer scalar, got i32[2]",
    ),
    "switch: an item": (
        lambda: switch(0, [one, 3], X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "switch: branches[1]: expected a function, got 3 of type int",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str) -> None:
    assert_misuse(*CASES[name])


@pytest.mark.parametrize(
    ("body", "init", "message"),
    [
        (widen, {"a": X}, TYPES),
        (other, {"a": 1}, GROWN),
        (
            text,
            X,
            "fori_loop: the carry returned must be an array or a scalar, got 'text' of type str",
        ),
        (ref, X, f"fori_loop: the carry returned {NO_REF}"),
        (keep, "text", "fori_loop: init_val must be an array or a scalar, got 'text' of type str"),
        (
            read,
            R,
            "fori_loop: the carry goes in as a Ref of type Ref{f32[4]}, and must come out as the same Ref, but "
            f"`{function_source(read)}` returns f32[4]; write to the Ref, and return it as it is",
        ),
        (wrap, X, f"{STRUCTURE} `{function_source(wrap)}` {WRAPPED}"),
        (
            nothing,
            X,
            f"{STRUCTURE} `{function_source(nothing)}` carry goes in as f32[4] and comes out as None; does the "
            "function return?",
        ),
    ],
)
def test_a_body_whose_number_of_steps_is_computed(body: Any, init: Any, message: str) -> None:
    assert_misuse(traced(body, init), TypeError, message, within=traced)


@pytest.mark.parametrize("make", [np.int32, np.int8, int])
def test_negative_numbers_of_any_type(make: Any) -> None:
    message = "must not be negative, got -2"
    assert_misuse(lambda: for_loop(make(-2), nothing, X), ValueError, f"for_loop: nsteps {message}")
    assert_misuse(lambda: scan(two, X, length=make(-2)), ValueError, f"scan: length {message}")


@pytest.mark.parametrize("make", [np.int8, np.uint32, np.int64, int])
def test_options_may_be_integers_of_any_type(make: Any) -> None:
    two_of = make(2)
    np.testing.assert_array_equal(np.asarray(map(one, X, batch_size=two_of)), X)
    np.testing.assert_array_equal(np.asarray(scan(two, 0.0, X, unroll=two_of)[1]), X)
    total = associative_scan(lambda a, b: a + b, M, axis=make(1), block=two_of)
    np.testing.assert_array_equal(np.asarray(total), np.cumsum(M, 1))
    assert accumulate_grads(loss, two_of)(1.0, {"a": X})[0].item() == 3.0
    assert Progress(every=two_of) == Progress(every=2)

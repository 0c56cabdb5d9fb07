"""Bad input to Refs: the type of each error, its message, and the user's line."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    FrozenRefError,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    linear_transpose,
    optimization_barrier,
    vjp,
    vmap,
)
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.ir.source import function_source
from fiveloop.state import Ref, addupdate, freeze, get, new_ref, run_state, swap
from fiveloop.testing.core.misuse import assert_misuse, assert_within, raised

X = to_array(as_value(np.arange(4, dtype=np.float32)))
M = to_array(as_value(np.ones((3, 2), np.float32)))
K = to_array(as_value(np.arange(4, dtype=np.int32)))

Case = tuple[Callable[[], object], type[Exception], str]


def square(x: Any, y: Any) -> None:
    """A function of two arguments."""


def within(transform: Callable[..., Any], use: Callable[[Any], object], x: Any) -> Any:
    """Use a Ref that starts as `x` in a transformed function."""

    def f(v: Any) -> Any:
        use(new_ref(v))
        return v.sum()

    return transform(f)(x)


HOST = "expected an array to be made {}, got Ref{{{}}}; read a Ref first: `ref[...]`"
NO_INDEX = "expected an index to be an integer, a slice, an array of integers, `...` or None, got"
CASES: dict[str, Case] = {
    "read out of bounds": (
        lambda: new_ref(X)[9],
        IndexError,
        "index 9 is out of bounds for axis 0 of size 4",
    ),
    "write out of bounds in jit": (
        lambda: within(jit, lambda r: r.__setitem__(-5, 0.0), X),
        IndexError,
        "index -5 is out of bounds for axis 0 of size 4",
    ),
    "float index": (lambda: new_ref(X)[1.5], TypeError, f"{NO_INDEX} float 1.5"),
    "too many indices": (
        lambda: new_ref(X)[0, 0],
        IndexError,
        "expected at most 1 indices for an array of shape (4,), got 2 in (0, 0)",
    ),
    "float into integers": (
        lambda: new_ref(K).__setitem__(0, 1.5),
        TypeError,
        "cannot write a value of dtype f32 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
    "float into integers in jit": (
        lambda: within(jit, lambda r: r.__setitem__(0, 1.5), K),
        TypeError,
        "cannot write a value of dtype f32 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
    "float added to integers": (
        lambda: addupdate(new_ref(K), 0, 1.5),
        TypeError,
        "cannot write a value of dtype f32 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
    "64 bits into 32": (
        lambda: new_ref(X).__setitem__(slice(1), np.ones(1)),
        TypeError,
        "cannot write a value of dtype f64 into an array of dtype f32 without loss; convert it first: "
        "`v.astype('float32')`",
    ),
    "64 bits into 32 in jit": (
        lambda: within(jit, lambda r: r.__setitem__(..., np.ones(4)), X),
        TypeError,
        "cannot write a value of dtype f64 into an array of dtype f32 without loss; convert it first: "
        "`v.astype('float32')`",
    ),
    "64 bits added to 32": (
        lambda: addupdate(new_ref(K), 0, np.int64(1)),
        TypeError,
        "cannot write a value of dtype i64 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
    "complex into real": (
        lambda: new_ref(X).__setitem__(0, 1j),
        TypeError,
        "cannot write a value of dtype c64 into an array of dtype f32 without loss; convert it first: "
        "`v.real.astype('float32')`",
    ),
    "unsigned into signed": (
        lambda: new_ref(K).__setitem__(0, np.uint32(1)),
        TypeError,
        "cannot write a value of dtype u32 into an array of dtype i32 without loss; convert it first: "
        "`v.astype('int32')`",
    ),
    "an integer out of range": (
        lambda: new_ref(K).__setitem__(0, 2**40),
        OverflowError,
        "the value written: the integer 1099511627776 does not fit int32, which holds -2147483648 to 2147483647; "
        "write one that fits, or make the array, or Ref, of a wider dtype",
    ),
    "bool of a Ref": (lambda: bool(new_ref(X[0])), TypeError, HOST.format("a bool", "f32[]")),
    "float of a Ref": (lambda: float(new_ref(X[0])), TypeError, HOST.format("a float", "f32[]")),
    "int of a Ref": (lambda: int(new_ref(X[0])), TypeError, HOST.format("an int", "f32[]")),
    "NumPy array of a Ref": (
        lambda: np.asarray(new_ref(X)),
        TypeError,
        HOST.format("a NumPy array", "f32[4]"),
    ),
    "list of a Ref": (lambda: new_ref(X).tolist(), TypeError, HOST.format("a list", "f32[4]")),
    "item of a Ref": (
        lambda: new_ref(X[0]).item(),
        TypeError,
        HOST.format("a Python scalar", "f32[]"),
    ),
    "format of a Ref": (
        lambda: f"{new_ref(X[0]):.2f}",
        TypeError,
        HOST.format("text in the format '.2f'", "f32[]"),
    ),
    "bool of a traced Ref": (
        lambda: within(jit, lambda r: bool(r), X),
        TypeError,
        HOST.format("a bool", "f32[4]"),
    ),
    "NumPy array of a traced Ref": (
        lambda: within(jit, lambda r: np.asarray(r), X),
        TypeError,
        HOST.format("a NumPy array", "f32[4]"),
    ),
    "sum with a Ref": (
        lambda: new_ref(X) + 1,
        TypeError,
        "add: expected `x` to be an array, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    ),
    "a NumPy array and a Ref": (
        lambda: np.ones(4) * new_ref(X),
        TypeError,
        "mul: expected `y` to be an array, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    ),
    "a function of NumPy on a Ref": (
        lambda: np.sin(new_ref(X)),
        TypeError,
        "sin: expected `x` to be an array, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    ),
    "a method on a Ref": (
        lambda: new_ref(X).sum(),
        TypeError,
        "sum: expected `x` to be an array, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    ),
    "a functional update of a Ref": (
        lambda: new_ref(X).at[0].add(1.0),  # type: ignore[attr-defined]  # that is the point
        AttributeError,
        "a part of a Ref, `ref.at[index]`, has no attribute 'add': write `ref[index] += x`",
    ),
    "shape": (
        lambda: swap(new_ref(X), slice(0, 2), M),
        ValueError,
        "cannot write a value of shape (3, 2) where the index selects shape (2,): it does not broadcast to it",
    ),
    "shape in vmap": (
        lambda: within(vmap, lambda r: r.__setitem__(0, M), X[None]),
        ValueError,
        "cannot write a value of shape (3, 2) where the index selects shape (): it does not broadcast to it",
    ),
    "no Ref to read": (
        lambda: get(3.0, 0),
        TypeError,
        "get: expected a Ref, got 3.0 of type float; make one with new_ref",
    ),
    "no Ref to freeze": (
        lambda: freeze({"a": K}),
        TypeError,
        "freeze: expected a Ref, got Array([0, 1, 2, 3], dtype=int32) of type Array; make one with new_ref",
    ),
    "contents that are no array": (
        lambda: new_ref(["s"]),
        TypeError,
        "new_ref: init[0] must be an array or a scalar, got 's' of type str",
    ),
    "a Ref of a Ref": (
        lambda: new_ref(new_ref(X)),
        TypeError,
        "new_ref: init must be an array, got a Ref of type Ref{f32[4]}; to copy a Ref, read it: new_ref(ref[...])",
    ),
    "arithmetic on a Ref": (
        lambda: new_ref(X) + 1,
        TypeError,
        "add: expected `x` to be an array, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    ),
    "a function that returns something": (
        lambda: run_state(lambda r: 3)(X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "run_state: the function works on its Refs and must return None, got 3",
    ),
    "a Ref written into a Ref": (
        lambda: new_ref(X).__setitem__(..., new_ref(X)),
        TypeError,
        "the value written must be an array, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    ),
    "run_state of no function": (
        lambda: run_state(3),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "run_state: expected a function, got 3 of type int",
    ),
    "run_state of a function of nothing": (
        lambda: run_state(square)(X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"run_state: the function must take (refs), but `{function_source(square)}` takes (x, y)",
    ),
    "a Ref as a result of a differentiated function": (
        lambda: grad(new_ref)(X),
        TypeError,
        "grad of new_ref: it must return one float scalar, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)


def test_what_a_ref_takes_without_loss() -> None:
    ref, wide = new_ref(X), new_ref(X.astype("float64"))
    ref[0] = 3
    ref[1] = np.float16(0.5)
    ref[2] = np.int64(7)
    ref[3] = True
    wide[...] = X
    wide[0] = np.int32(9)
    np.testing.assert_array_equal(ref[...], [3.0, 0.5, 7.0, 1.0])
    np.testing.assert_array_equal(wide[...], [9.0, 1.0, 2.0, 3.0])


def test_copies_of_a_ref_are_refs_of_their_own() -> None:
    ref = new_ref(X)
    copies = [copy.copy(ref), copy.deepcopy({"r": ref})["r"], pickle.loads(pickle.dumps(ref))]
    ref[0] = 9.0
    for other in copies:
        np.testing.assert_array_equal(other[...], X)


def test_in_place_arithmetic_on_a_ref_that_was_read() -> None:
    ref = new_ref(X)
    ref[0]
    assert_misuse(
        lambda: ref.__iadd__(1),
        TypeError,
        ADDED,
    )


def test_a_written_value_under_differentiation() -> None:
    ref = new_ref(X)
    before = np.asarray(ref[...])

    def writes(x: Any) -> Any:
        ref[0] = x.sum()
        return x.sum()

    assert_misuse(
        lambda: grad(writes)(X),
        TypeError,
        "swap: a value under differentiation is written to a Ref that is not differentiated, so its derivative "
        "would be lost; pass the Ref's contents into the differentiated function and make the Ref there, or "
        "write `stop_gradient(x)`",
        within=writes,
    )
    np.testing.assert_array_equal(ref[...], before)


def test_a_batched_value_in_a_shared_ref() -> None:
    ref = new_ref(X)
    assert_misuse(
        lambda: vmap(lambda x: ref.__setitem__(0, x))(X),
        TypeError,
        "swap: each lane of a vmap writes its own value to a Ref that all lanes share, so the last would win; "
        "pass the Ref through `vmap` with an in_axis of its own, make it inside the function, or accumulate "
        "with `+=`, which adds up the lanes",
    )


def read(ref: Any) -> Any:
    return ref[0]


def write(ref: Any) -> Any:
    ref[0] = 1.0


def accumulate(ref: Any) -> Any:
    ref[0] += 1.0


def freeze_again(ref: Any) -> Any:
    return freeze(ref)


def read_in_jit(ref: Any) -> Any:
    return jit(lambda: ref[0])()


def eagerly(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return f


@pytest.mark.parametrize("use", [read, write, accumulate, freeze_again, read_in_jit])
@pytest.mark.parametrize("transform", [eagerly, jit, grad])
def test_a_ref_that_has_been_frozen(
    transform: Callable[..., Any], use: Callable[[Any], Any]
) -> None:
    def f(x: Any) -> Any:
        ref = new_ref(x)
        freeze(ref)
        use(ref)
        return x.sum()

    error = raised(lambda: transform(f)(X))
    assert type(error) is FrozenRefError
    given, _, place = str(error).partition("\n  at ")
    code = f.__code__
    where = f"{code.co_filename}:{code.co_firstlineno + 2} (f)"
    assert given == (
        f"the Ref of type Ref{{f32[4]}} was used after it had been frozen at {where}; use the array that "
        "`freeze` returned"
    )
    assert_within(use, place)


def added_to(ref: Any) -> None:
    ref += 1.0


def gone_over(ref: Any) -> None:
    for _ in ref:
        pass


ADDED = "`+=` on a Ref of type Ref{f32[4]} would give its name to a sum: write `ref[...] += x`, or `ref[index] += x`"
GONE_OVER = (
    "iter: expected an array, got Ref{f32[4]}; iterate over its contents, `for row in ref[...]`, or over its parts, "
    "`for i in range(len(ref)): ref.at[i]`"
)


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
@pytest.mark.parametrize(("fun", "message"), [(added_to, ADDED), (gone_over, GONE_OVER)])
def test_a_ref_is_neither_added_to_nor_gone_over(wrap: Any, fun: Any, message: str) -> None:
    assert_misuse(
        lambda: wrap(fun)(new_ref(np.zeros(4, np.float32))), TypeError, message, within=fun
    )


def read_one(ref: Any, i: Any) -> Any:
    return ref[i]


def test_no_element_of_an_empty_axis() -> None:
    assert_misuse(
        lambda: jit(read_one)(new_ref(np.zeros((0, 3))), 0),
        IndexError,
        "expected an axis that has elements for an index, got axis 0, of size 0, of an array of shape (0, 3); leave "
        "the code out for empty arrays",
        within=read_one,
    )


@pytest.mark.parametrize("name", ["x", "shape", "T"])
@pytest.mark.parametrize("part", [lambda r: r, lambda r: r.at[1:], lambda r: r.T])
@pytest.mark.parametrize("wrap", [lambda f: f, jit, grad])
def test_a_ref_takes_no_attributes(wrap: Any, part: Any, name: str) -> None:
    ref = new_ref(np.zeros((2, 3), np.float32))
    assert_misuse(
        lambda: wrap(lambda r: setattr(part(r), name, 1.0))(ref),
        AttributeError,
        f"a value of type {part(ref).aval} has no attribute {name!r} that can be set; write the contents of a Ref by "
        "`ref[...] = x`",
    )


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda r: copy.deepcopy([r])])
def test_a_copy_of_a_traced_ref_names_the_users_line(copied: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"read a Ref first: `ref\[...\]`\n  at .*test_errors.py"):
        jit(lambda x: copied(new_ref(x)))(X)


def made(x: Any) -> Any:
    """A function that returns a Ref it has made."""
    return new_ref(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda: vjp(made, X),
        lambda: jacfwd(made)(X),
        lambda: jacrev(made)(X),
        lambda: hessian(made)(X),
        lambda: linear_transpose(made, X),
    ],
    ids=["vjp", "jacfwd", "jacrev", "hessian", "linear_transpose"],
)
def test_a_ref_as_a_result_that_is_differentiated(call: Callable[[], object]) -> None:
    assert_misuse(
        call,
        TypeError,
        f"the result of {function_source(made)} is a Ref of type Ref{{f32[4]}} that has no derivative of its own; "
        "return its contents, `ref[...]`",
    )


def test_a_barrier_names_its_argument() -> None:
    assert_misuse(
        lambda: optimization_barrier(new_ref(X)),
        TypeError,
        "optimization_barrier: expected `operand` to be an array, got Ref{f32[4]}; read a Ref first: `ref[...]`",
    )


def test_the_type_of_refs_is_not_called() -> None:
    message = (
        "Ref: expected a type's use, in an annotation or in `isinstance`, got a call; make a Ref with `new_ref(x)` or "
        "`empty_ref(shape, dtype)`"
    )
    assert_misuse(lambda: Ref(X), TypeError, message)
    assert_misuse(lambda: Ref(), TypeError, message)


MIXED = {1: X, "a": X}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: new_ref([X, MIXED]),
            "new_ref: init[1]: expected dict keys that can be put in order",
        ),
        (lambda: freeze([MIXED]), "freeze: ref[0]: expected dict keys that can be put in order"),
        (
            lambda: new_ref([X, "s"]),
            "new_ref: init[1] must be an array or a scalar, got 's' of type str",
        ),
    ],
    ids=["new_ref", "freeze", "text"],
)
def test_a_part_of_a_tree_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        call()

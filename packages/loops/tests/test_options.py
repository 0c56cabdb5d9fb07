"""Options of a wrong type are TypeErrors, and bad ones of the right type ValueErrors; functions that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop import loops
from fiveloop.core import disable_jit, jit, make_jaxpr
from fiveloop.state import new_ref
from fiveloop.testing.core.misuse import assert_misuse

X = np.arange(4, dtype=np.float32)
CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")


def pair(carry: Any, x: Any) -> Any:
    return carry, x


def keep(i: Any, carry: Any) -> Any:
    return carry


def nothing(i: Any, refs: Any) -> None:
    """A body that does nothing."""


def same(x: Any) -> Any:
    return x


def add(a: Any, b: Any) -> Any:
    return a + b


def loss(w: Any, x: Any) -> Any:
    return (w * x).sum()


CALLS: dict[str, Callable[..., Any]] = {
    "for_loop": lambda **given: loops.for_loop(3, nothing, X, **given),
    "scan": lambda **given: loops.scan(pair, 0.0, X, **given),
    "fori_loop": lambda **given: loops.fori_loop(0, 3, keep, X, **given),
    "map": lambda **given: loops.map(same, X, **given),
    "associative_scan": lambda **given: loops.associative_scan(add, X, **given),
    "accumulate_grads": lambda **given: loops.accumulate_grads(loss, 2, **given),
    "cond": lambda **given: loops.cond(True, same, same, X, **given),
    "switch": lambda **given: loops.switch(0, [same, same], X, **given),
    "while_loop": lambda **given: loops.while_loop(lambda v: v < 3, lambda v: v + 1, 0, **given),
}
FLAG = "True or False"
COUNT = "an integer of at least 1"
COUNT_OR_0 = "an integer of at least 0"
UNROLL = f'{COUNT_OR_0}, True, False or "auto"'
VMAP = '"select", "serial" or "group"'
BAR = "True, False, a label or a Progress"
NAMES = {
    ("for_loop", "reverse"): FLAG,
    ("scan", "reverse"): FLAG,
    ("associative_scan", "reverse"): FLAG,
    ("accumulate_grads", "has_aux"): FLAG,
    ("for_loop", "unroll"): UNROLL,
    ("scan", "unroll"): UNROLL,
    ("fori_loop", "unroll"): UNROLL,
    ("map", "batch_size"): COUNT_OR_0,
    ("associative_scan", "block"): COUNT,
    ("cond", "vmap"): VMAP,
    ("switch", "vmap"): VMAP,
    ("accumulate_grads", "reduction"): '"mean" or "sum"',
    ("accumulate_grads", "aux_reduction"): '"mean", "sum", "max", "min" or "stack"',
    ("for_loop", "progress"): BAR,
    ("scan", "progress"): BAR,
    ("fori_loop", "progress"): BAR,
    ("map", "progress"): BAR,
    ("while_loop", "progress"): BAR,
    ("accumulate_grads", "progress"): BAR,
}
BAD: dict[str, tuple[list[Any], list[Any]]] = {
    FLAG: ([2, 0, "yes", None, 1.0], []),
    UNROLL: ([2.5, None, [1]], [-1, -3, "all"]),
    COUNT_OR_0: ([2.5, "2", True], [-1]),
    COUNT: ([2.5, "2", True], [0, -1]),
    VMAP: ([3, True, None], ["batch"]),
    BAR: ([3, 1.5, []], []),
}
TYPES = [
    (*key, given)
    for key, expected in NAMES.items()
    for given in BAD.get(expected, ([3, None], []))[0]
]
VALUES = [
    (*key, given)
    for key, expected in NAMES.items()
    for given in BAD.get(expected, ([], ["average"]))[1]
]


@pytest.mark.parametrize(("fun", "option", "given"), TYPES)
def test_an_option_of_a_wrong_type(fun: str, option: str, given: Any) -> None:
    expected = f"{fun}: {option} must be {NAMES[fun, option]}, got {given!r} of type {type(given).__name__}"
    assert_misuse(lambda: CALLS[fun](**{option: given}), TypeError, expected, within=CALLS[fun])


@pytest.mark.parametrize(("fun", "option", "given"), VALUES)
def test_an_option_that_is_no_choice(fun: str, option: str, given: Any) -> None:
    expected = f"{fun}: {option} must be {NAMES[fun, option]}, got {given!r}"
    assert_misuse(lambda: CALLS[fun](**{option: given}), ValueError, expected, within=CALLS[fun])


@pytest.mark.parametrize("name", CUMULATIVE)
@pytest.mark.parametrize("given", [2, "yes", None])
def test_cumulative_functions_run_from_one_end(name: str, given: Any) -> None:
    fun: Any = getattr(loops, name)
    message = f"{name}: expected `reverse` to be True or False, got {given!r} of type {type(given).__name__}"
    assert_misuse(lambda: fun(X, reverse=given), TypeError, message)
    backwards = np.asarray(fun(X, reverse=np.True_))
    np.testing.assert_array_equal(backwards, np.asarray(fun(X[::-1]))[::-1])


def test_flags_of_numpy_are_flags() -> None:
    def step(carry: Any, x: Any) -> Any:
        return carry + x, carry

    want = loops.scan(step, 0.0, X, reverse=True)[1]
    got = loops.scan(step, 0.0, X, reverse=np.True_, unroll=np.False_, progress=np.False_)[1]  # type: ignore[call-overload]  # what is tested
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


STATIC = "; it must be known while tracing: if it comes from an argument, name that one in static_argnums"


def test_a_traced_flag_is_refused() -> None:
    def run(flag: Any) -> Any:
        return loops.scan(pair, 0.0, X, reverse=flag)

    message = f"scan: reverse must be True or False, got bool[]{STATIC}"
    assert_misuse(lambda: jit(run)(True), TypeError, message, within=run)


FUNCTIONS: dict[str, Callable[[Any], object]] = {
    "for_loop: body": lambda f: loops.for_loop(3, f, X),
    "scan: f": lambda f: loops.scan(f, 0.0, X),
    "fori_loop: body_fun": lambda f: loops.fori_loop(0, 3, f, X),
    "map: f": lambda f: loops.map(f, X),
    "while_loop: cond_fun": lambda f: loops.while_loop(f, same, 0),
    "while_loop: body_fun": lambda f: loops.while_loop(same, f, 0),
    "associative_scan: fn": lambda f: loops.associative_scan(f, X),
    "accumulate_grads: fun": lambda f: loops.accumulate_grads(f, 2),
    "cond: true_fun": lambda f: loops.cond(True, f, same, X),
    "cond: false_fun": lambda f: loops.cond(True, same, f, X),
    "switch: branches[1]": lambda f: loops.switch(0, [same, f], X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("given", [None, "body", 3])
def test_what_is_no_function_is_named(name: str, given: Any) -> None:
    call = FUNCTIONS[name]
    message = f"{name}: expected a function, got {given!r} of type {type(given).__name__}"
    assert_misuse(lambda: call(given), TypeError, message, within=call)
    with disable_jit():
        assert_misuse(lambda: call(given), TypeError, message, within=call)


@pytest.mark.parametrize("axis", [1.5, None, True])
def test_an_axis_that_is_no_integer(axis: Any) -> None:
    message = "associative_scan: axis must be an axis of elems, of type f32[4], got"
    assert_misuse(
        lambda: loops.associative_scan(add, X, axis=axis),
        TypeError,
        f"{message} {axis!r} of type {type(axis).__name__}",
    )


def test_a_batch_of_nothing() -> None:
    assert_misuse(
        lambda: loops.accumulate_grads(loss, 2)(1.0, None),
        ValueError,
        "accumulate_grads of loss: argument `x` is a batch, and must hold at least one array, got None",
    )


def test_integers_beyond_int64_are_named() -> None:
    big = 2**70
    said = f"the integer {big} does not fit int64"
    assert_misuse(
        lambda: loops.fori_loop(0, big, keep, X), OverflowError, f"fori_loop: upper: {said}"
    )
    assert_misuse(lambda: loops.switch(big, [same], X), OverflowError, f"switch: index: {said}")
    assert_misuse(
        lambda: loops.scan(pair, {"a": big}, X), OverflowError, f"scan: init['a']: {said}"
    )


def test_branches_of_other_arguments_without_compilation() -> None:
    def two(x: Any, y: Any) -> Any:
        return x

    with (
        disable_jit(),
        pytest.raises(TypeError, match=r"cond: true_fun must take the 1 operand, but `two at "),
    ):
        loops.cond(True, two, same, X)  # type: ignore[arg-type]  # what is tested


def test_a_ref_as_an_output_without_compilation() -> None:
    ref = new_ref(X)
    message = "map: y must be an array, got a Ref of type Ref{f32[4]}; its contents are `ref[...]`"
    for _ in range(2):
        assert_misuse(lambda: loops.map(lambda x: ref, X), TypeError, message)
    with disable_jit():
        assert_misuse(lambda: loops.map(lambda x: ref, X), TypeError, message)


NO_ORDER = (
    "expected dict keys that can be put in order, got 1, 'a'; "
    "'<' not supported between instances of 'str' and 'int'"
)
UNORDERED: dict[str, Callable[[Any], object]] = {
    "for_loop: init_state": lambda tree: loops.for_loop(3, nothing, tree),
    "scan: the carry": lambda tree: loops.scan(pair, tree, X),
    "scan: xs": lambda tree: loops.scan(pair, 0.0, tree),
    "scan: y": lambda tree: loops.scan(lambda c, x: (c, tree), 0.0, X),
    "fori_loop: the carry": lambda tree: loops.fori_loop(0, 3, keep, tree),
    "while_loop: val": lambda tree: loops.while_loop(same, same, tree),
    "map: xs": lambda tree: loops.map(same, tree),
    "associative_scan: elems": lambda tree: loops.associative_scan(add, tree),
}


@pytest.mark.parametrize("name", UNORDERED)
def test_a_dict_whose_keys_have_no_order_is_named(name: str) -> None:
    call = UNORDERED[name]
    assert_misuse(lambda: call({1: X, "a": X}), TypeError, f"{name}: {NO_ORDER}", within=call)


def test_a_builtin_that_takes_something_else() -> None:
    kind: Any = dict
    said = "dict expected at most 1 argument, got 2"
    assert_misuse(lambda: loops.scan(kind, 0.0, X), TypeError, said)


def test_a_traced_axis_is_refused() -> None:
    def run(axis: Any) -> Any:
        return loops.associative_scan(add, X, axis=axis)

    message = f"associative_scan: axis must be an axis of elems, of type f32[4], got i32*[]{STATIC}"
    assert_misuse(lambda: jit(run)(0), TypeError, message, within=run)


def test_zero_takes_all_at_once() -> None:
    """All steps in one turn, and all slices in one batch."""

    def step(carry: Any, x: Any) -> Any:
        return carry + x, carry

    for xs in (X, X[:0]):
        want = loops.scan(step, 0.0, xs, unroll=True)
        got = loops.scan(step, 0.0, xs, unroll=0)
        np.testing.assert_array_equal(np.asarray(got[1]), np.asarray(want[1]))
        loop = make_jaxpr(lambda xs: loops.scan(step, 0.0, xs, unroll=0))(xs).eqns
        assert [eqn.params.unroll for eqn in loop if eqn.primitive.name == "for"] == [4][: len(xs)]
        doubled = loops.map(lambda x: 2 * x, xs, batch_size=0)
        np.testing.assert_array_equal(np.asarray(doubled), 2 * xs)

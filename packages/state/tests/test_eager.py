"""Refs outside of traces: one program serves every position, and no write is lost."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    block_until_ready,
    closed_call,
    custom_vjp,
    hessian,
    jit,
    named_call,
    value_and_grad,
)
from fiveloop.core.backend import client
from fiveloop.core.errors import DonatedError
from fiveloop.state import Ref, new_ref


def count(ref: Ref) -> None:
    """Add one to each element, one by one."""
    for k in range(ref.shape[0]):
        ref[k] += 1.0


def test_accesses_at_different_places_share_their_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    count(new_ref(np.zeros(3, np.float32)))
    compiled: list[str] = []
    original = client.compile_text

    def counting(text: str, *args: Any, **kwargs: Any) -> Any:
        compiled.append(text)
        return original(text, *args, **kwargs)

    monkeypatch.setattr(client, "compile_text", counting)
    ref = new_ref(np.zeros(3, np.float32))
    count(ref)
    count(ref)
    np.testing.assert_array_equal(np.asarray(ref[...]), [2, 2, 2])
    assert compiled == []


def test_a_value_that_was_read_does_not_change_with_a_later_write() -> None:
    ref = new_ref(np.arange(3.0))
    before = ref[...]
    ref[0] = 9.0
    np.testing.assert_array_equal(np.asarray(before), [0, 1, 2])
    np.testing.assert_array_equal(np.asarray(ref[...]), [9, 1, 2])


def custom_vjp_of(fun: Any) -> Any:
    """The function with a rule."""
    made = custom_vjp(fun)
    made.defvjp(lambda *args: (fun(*args), None), lambda res, ct: (None, None))
    return made


def write_both(a: Any, b: Any) -> None:
    a[0] += 1.0
    b[0] += 5.0


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (jit, "jit"),
        (closed_call, "closed_call"),
        (named_call, "named_call"),
        (hessian, "hessian"),
        (custom_vjp_of, "custom_vjp"),
        (lambda f: value_and_grad(lambda a, b: f(a, b)), "value_and_grad"),
    ],
)
def test_the_call_that_refuses_a_ref_twice_is_named(transform: Any, name: str) -> None:
    ref = new_ref(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=rf"^{name} of \S+: argument `a` and argument `b` are one"):
        transform(write_both)(ref, ref)


@pytest.mark.parametrize("transform", [jit, closed_call])
def test_one_ref_in_two_places_of_a_call_is_refused(transform: Any) -> None:
    ref = new_ref(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="argument `a` and argument `b` are one Ref"):
        transform(write_both)(ref, ref)

    def closes_over(other: Any) -> None:
        write_both(ref, other)

    with pytest.raises(ValueError, match="which the function also closes over"):
        transform(closes_over)(ref)
    np.testing.assert_array_equal(np.asarray(ref[...]), [0, 0])


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        *[(np.int32, 2**40), (np.uint8, 300), (np.int8, -200), (np.float16, 10**6)],
        *[(np.float16, 65520.0), (np.float16, -1e6), (np.float32, 1e39), (np.complex64, 1e39)],
        (np.float16, np.float64(1e6)),
    ],
)
def test_a_number_that_does_not_fit_is_refused(dtype: Any, number: complex) -> None:
    ref = new_ref(np.zeros(2, dtype))
    told = re.escape(f"{'integer' if isinstance(number, int) else 'number'} {number} does not fit")
    with pytest.raises(OverflowError, match=told):
        ref[0] = number

    def traced(ref: Any) -> None:
        ref[0] = number

    with pytest.raises(OverflowError, match=told):
        jit(traced)(ref)


def test_waiting_for_a_tree_gives_it_back() -> None:
    tree = {
        "ref": new_ref(np.ones(2)),
        "array": jit(lambda x: x + 1)(1.0),
        "rest": [np.ones(2), "text", None],
    }
    assert block_until_ready(tree) is tree
    gone = jit(lambda x: x)(np.ones(2))
    jit(lambda x: x + 1, donate_argnums=0)(gone)
    with pytest.raises(DonatedError, match="donated"):
        block_until_ready([tree, gone])

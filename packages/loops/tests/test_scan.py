"""scan, fori_loop and map against NumPy and Python loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.state as st
from fiveloop.core import Array, disable_jit, grad, jit, jvp, vmap
from fiveloop.loops import for_loop, fori_loop, map, scan

XS = np.arange(6, dtype=np.float32) / 3


def decay(carry: Any, x: Any) -> Any:
    new = 0.5 * carry + x * x
    return new, carry


def decay_by_hand(start: float, xs: Any) -> tuple[float, list[float]]:
    outs = []
    for x in xs:
        outs.append(start)
        start = 0.5 * start + x * x
    return start, outs


@pytest.mark.parametrize("unroll", [1, 2, 4, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_python_loop(unroll: int, reverse: bool) -> None:
    final, outs = jit(lambda xs: scan(decay, 1.0, xs, reverse=reverse, unroll=unroll))(XS)
    want, want_outs = decay_by_hand(1.0, XS[::-1] if reverse else XS)
    np.testing.assert_allclose(float(final), want, rtol=1e-6)
    np.testing.assert_allclose(
        np.asarray(outs), want_outs[::-1] if reverse else want_outs, rtol=1e-6
    )


def test_the_gradient_of_scan_is_that_of_the_loop() -> None:
    def total(xs: Any) -> Any:
        final, outs = scan(decay, 1.0, xs)
        return final + (outs * outs).sum()

    got = np.asarray(jit(grad(total))(XS))

    def by_hand(xs: Any) -> float:
        final, outs = decay_by_hand(1.0, xs)
        return final + sum(v * v for v in outs)

    xs = XS.astype(np.float64)
    steps = np.eye(len(xs)) * 1e-6
    want = [(by_hand(xs + h) - by_hand(xs - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_scan_of_pytrees_keeps_their_structure() -> None:
    def step(carry: Any, x: Any) -> Any:
        return {"n": carry["n"] + 1, "s": carry["s"] + x["a"].sum()}, (x["b"], carry["n"])

    carry, (bs, ns) = scan(step, {"n": 0, "s": 0.0}, {"a": np.ones((3, 2), "f4"), "b": XS[:3]})
    assert (int(carry["n"]), float(carry["s"])) == (3, 6.0)
    np.testing.assert_array_equal(np.asarray(bs), XS[:3])
    np.testing.assert_array_equal(np.asarray(ns), [0, 1, 2])


def test_a_scan_without_steps_gives_the_carry_and_empty_outputs() -> None:
    start: Any = 2.0
    final, outs = scan(decay, start, XS[:0])
    assert isinstance(final, Array)
    assert (float(final), outs.shape) == (2.0, (0,))


def test_a_weak_carry_takes_the_type_that_the_step_gives_it() -> None:
    start: Any = 0
    final, _ = scan(lambda c, x: (c + x, None), start, np.ones(3, np.float64))
    assert (final.dtype, float(final)) == (np.float64, 3.0)


def test_a_scan_writes_to_a_ref_that_it_closes_over() -> None:
    ref = st.new_ref(np.zeros(6, np.float32))

    def step(i: Any, x: Any) -> Any:
        ref[i] = 2.0 * x
        return i + 1, None

    scan(step, np.int32(0), XS)
    np.testing.assert_array_equal(np.asarray(ref[...]), 2 * XS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scan(lambda c, x: (c, x), 0.0, None), "length must say how many steps"),
        (lambda: scan(lambda c, x: (c, x), 0.0, 1.0), "no axis to scan over"),
        (lambda: scan(lambda c, x: (c, x), 0.0, XS, 5), "leading axes differ: xs has 6"),
    ],
)
def test_bad_lengths_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_step_may_return_its_pair_as_a_list() -> None:
    def step(c: Any, x: Any) -> Any:
        return [c + x, c]

    xs = np.arange(4, dtype=np.float32)
    ref = st.new_ref(np.float32(0))

    def step_of_ref(c: Any, x: Any) -> Any:
        c[0][...] += x
        return [c, c[0][...]]

    for run in (lambda f: f, jit):
        out = run(lambda: scan(step, 0.0, xs))()
        assert type(out) is tuple
        np.testing.assert_array_equal(np.asarray(out[1]), [0, 0, 1, 3])
    with disable_jit():
        assert float(scan(step, 0.0, xs)[0]) == 6
    np.testing.assert_array_equal(np.asarray(scan(step_of_ref, (ref, 0.0), xs)[1]), [0, 1, 3, 6])


def test_a_carry_that_changes_its_type_is_named_by_its_path() -> None:
    with pytest.raises(
        TypeError, match=r"carry\['a'\] goes in as f32\[2\] and comes out as i32\[2\]"
    ):
        scan(lambda c, x: ({"a": c["a"].astype("int32")}, x), {"a": np.ones(2, "f4")}, XS)


def test_fori_loop_counts_from_lower_to_upper() -> None:
    assert int(fori_loop(2, 6, lambda i, total: total + i, 0)) == 14
    assert int(jit(lambda n: fori_loop(0, n, lambda i, total: total + i, 0))(5)) == 10
    assert int(fori_loop(4, 2, lambda i, total: total + i, 7)) == 7


def test_fori_loop_has_both_derivatives() -> None:
    def cube(x: Any) -> Any:
        return fori_loop(0, 3, lambda i, y: y * x, 1.0)

    assert float(grad(cube)(2.0)) == 12.0
    assert float(jvp(grad(cube), (2.0,), (1.0,))[1]) == 12.0


@pytest.mark.parametrize("batch_size", [None, 1, 2, 4, 8])
def test_map_applies_the_function_to_each_slice(batch_size: int | None) -> None:
    got = jit(lambda xs: map(lambda x: x * x + 1.0, xs, batch_size=batch_size))(XS)
    np.testing.assert_allclose(np.asarray(got), XS * XS + 1)


def test_vmap_of_scan_is_a_scan_of_each() -> None:
    starts = np.arange(3, dtype=np.float32)
    final, outs = jit(vmap(lambda s: scan(decay, s, XS)))(starts)
    for k, start in enumerate(starts):
        want, want_outs = decay_by_hand(float(start), XS)
        np.testing.assert_allclose(np.asarray(final)[k], want, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(outs)[k], want_outs, rtol=1e-6)


def test_steps_past_the_end_of_a_ref_share_its_last_slot() -> None:
    """A slot is a step's own only if the counter stays within the axis: here four steps read the last one."""

    def total(x: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            y, xs = refs
            y[...] = 0.5 * y[...] + xs[i]

        return for_loop(7, body, (np.float32(0), x))[0]

    got = np.asarray(jit(grad(total))(np.ones(4, np.float32)))
    np.testing.assert_allclose(got, [0.5**6, 0.5**5, 0.5**4, 1 + 0.5 + 0.25 + 0.125])

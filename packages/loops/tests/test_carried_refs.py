"""Refs among what loops carry: each step is given the Ref, and gives it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import disable_jit, grad, jit, vmap
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.ir.source import function_source
from fiveloop.loops import cond, for_loop, fori_loop, map, scan, while_loop
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.misuse import assert_misuse


def through_scan(ref: Any, x: Any) -> Any:
    def step(carry: Any, k: Any) -> Any:
        ref, rest = carry
        ref[k] += rest["x"]
        return (ref, {"x": rest["x"] + 1.0}), rest["x"]

    (out, rest), xs = scan(step, (ref, {"x": x}), np.arange(3))
    assert out is ref
    return rest["x"], xs


def through_scan_that_ends(ref: Any, x: Any) -> Any:
    def step(carry: Any, k: Any) -> Any:
        ref, x = carry
        ref[k] += x
        return (ref, x * 2.0), None

    (out, x), _, steps = scan(step, (ref, x), np.arange(4), until=lambda c: c[0][2] > 0.0)
    assert out is ref
    return x, steps


def through_fori_loop(ref: Any, x: Any) -> Any:
    def body(k: Any, carry: Any) -> Any:
        ref, x = carry
        ref[k] += x
        return [ref, x * 2.0]

    out, x = fori_loop(1, 4, body, [ref, x])
    assert out is ref
    return x


def through_a_computed_fori_loop(ref: Any, x: Any) -> Any:
    def body(k: Any, ref: Any) -> Any:
        ref[k] += 1.0
        return ref

    assert fori_loop(0, x.astype(np.int32), body, ref) is ref
    return x


def through_while_loop(ref: Any, x: Any) -> Any:
    def body(val: Any) -> Any:
        k, ref = val
        ref[k] += x
        return k + 1, ref

    k, out = while_loop(lambda val: val[1][2] < 1.0, body, (0, ref))
    assert out is ref
    return k


def through_for_loop(ref: Any, x: Any) -> Any:
    def body(k: Any, refs: Any) -> None:
        refs["ref"][k] += refs["x"][...]
        refs["x"][...] *= 3.0

    out = for_loop(4, body, {"ref": ref, "x": x})
    assert out["ref"] is ref
    return out["x"]


def through_a_part(ref: Any, x: Any) -> Any:
    part = ref.at[1:3]

    def body(k: Any, part: Any) -> Any:
        part[k] += x
        return part

    assert fori_loop(0, 2, body, part) is part
    return x


def through_cond(ref: Any, x: Any) -> Any:
    def add(ref: Any, x: Any) -> Any:
        ref[0] += x
        return x

    return cond(x > 1.0, add, lambda ref, x: ref[1], ref, x)


ALL = [
    through_scan,
    through_scan_that_ends,
    through_fori_loop,
    through_a_computed_fori_loop,
    through_while_loop,
    through_for_loop,
    through_a_part,
    through_cond,
]


def by_hand(fun: Any, x: float) -> tuple[list[float], list[Any]]:
    """What the Ref holds in the end, and the results, by Python loops over a NumPy array."""
    held, k = np.zeros(4), 0
    if fun is through_scan:
        held[:3] = [x, x + 1.0, x + 2.0]
        return held.tolist(), [x + 3.0, [x, x + 1.0, x + 2.0]]
    if fun is through_scan_that_ends:
        held[:3] = [x, 2 * x, 4 * x]
        return held.tolist(), [8 * x, 3]
    if fun is through_fori_loop:
        held[1:] = [x, 2 * x, 4 * x]
        return held.tolist(), [8 * x]
    if fun is through_a_computed_fori_loop:
        held[: int(x)] = 1.0
        return held.tolist(), [x]
    if fun is through_while_loop:
        while held[2] < 1.0:
            held[k] += x
            k += 1
        return held.tolist(), [k]
    if fun is through_for_loop:
        return [x, 3 * x, 9 * x, 27 * x], [81 * x]
    if fun is through_a_part:
        return [0.0, x, x, 0.0], [x]
    return [x, 0.0, 0.0, 0.0], [x]


def run(fun: Any, x: Any) -> Any:
    ref = new_ref(np.zeros(4))
    out = fun(ref, x)
    return ref[...], out


@pytest.mark.parametrize("fun", ALL, ids=[f.__name__ for f in ALL])
def test_a_ref_in_the_carry_is_written_in_place(fun: Callable[[Any, Any], Any]) -> None:
    x = np.float64(2.0)
    held, outs = by_hand(fun, 2.0)
    results = [run(fun, new_ref(x)[...]), jit(lambda x: run(fun, x))(x)]
    with disable_jit():
        results.append(run(fun, new_ref(x)[...]))
    lanes = vmap(lambda x: run(fun, x))(np.full(2, x))
    results.append((lanes[0][1], _lane(lanes[1], 1)))
    for got, out in results:
        np.testing.assert_array_equal(got, held)
        for a, b in zip(out if isinstance(out, tuple) else [out], outs, strict=True):
            np.testing.assert_array_equal(a, b)


def _lane(out: Any, k: int) -> Any:
    return tuple(x[k] for x in out) if isinstance(out, tuple) else out[k]


def test_a_derivative_goes_through_a_ref_in_the_carry() -> None:
    def total(x: Any) -> Any:
        ref = new_ref(np.zeros(3))

        def step(carry: Any, k: Any) -> Any:
            ref, x = carry
            ref[k] += x * x
            return (ref, 2.0 * x), None

        (out, _), _ = scan(step, (ref, x), np.arange(3))
        return freeze(out).sum()

    for fun in (grad(total), jit(grad(total))):
        assert float(fun(2.0)) == 2.0 * 2.0 * (1.0 + 4.0 + 16.0)


def other(carry: Any, x: Any) -> Any:
    return (new_ref(1.0), carry[1]), None


def read(carry: Any, x: Any) -> Any:
    return (carry[0][...], carry[1]), None


def elsewhere(carry: Any, x: Any) -> Any:
    return (carry[0], carry[0]), None


def shorter(carry: Any, x: Any) -> Any:
    return (carry[0],), None


MISUSES: dict[str, tuple[Any, str]] = {
    "another Ref": (
        other,
        "scan: the carry[0] goes in as a Ref of type Ref{{f32[]}}, and must come out as the same Ref, but `{}` returns "
        "another Ref, of type Ref{{f32[]}}; write to the Ref, and return it as it is",
    ),
    "what it holds": (
        read,
        "scan: the carry[0] goes in as a Ref of type Ref{{f32[]}}, and must come out as the same Ref, but `{}` returns "
        "f32[]; write to the Ref, and return it as it is",
    ),
    "a Ref for an array": (
        elsewhere,
        "scan: the carry returned[1] must be an array, got a Ref of type Ref{{f32[]}}; its contents are `ref[...]`",
    ),
    "another structure": (
        shorter,
        "scan: the carry must keep its structure, but in `{}` carry goes in as a tuple of 2 and comes out as a tuple "
        "of 1",
    ),
}


@pytest.mark.parametrize(("fun", "message"), MISUSES.values(), ids=MISUSES)
def test_a_step_that_gives_back_something_else(fun: Any, message: str) -> None:
    assert_misuse(
        lambda: scan(fun, (new_ref(0.0), 1.0), None, 2),
        TypeError,
        message.format(function_source(fun)),
    )


TWICE: dict[str, tuple[Callable[[Any], object], str]] = {
    "scan": (
        lambda r: scan(lambda c, _: (c, None), (r, r), None, 2),
        "scan: the carry[0] and the carry[1] are one Ref{f64[3]}, so that what is written through one would change the "
        "other; pass it once",
    ),
    "fori_loop, parts": (
        lambda r: fori_loop(0, 2, lambda i, c: c, {"a": r.at[:2], "b": r.at[1:]}),
        "fori_loop: the carry['a'] and the carry['b'] are parts of one Ref that overlap, Ref{f64[3]}.at[0:2] and "
        "Ref{f64[3]}.at[1:3], so that what is written through one would change the other; pass parts that lie apart",
    ),
    "while_loop": (
        lambda r: while_loop(lambda v: v[0] < 2, lambda v: v, (0, r, r.at[0])),
        "while_loop: val[1] and val[2] are parts of one Ref that overlap, Ref{f64[3]} and Ref{f64[3]}.at[0], so that "
        "what is written through one would change the other; pass parts that lie apart",
    ),
    "for_loop": (
        lambda r: for_loop(2, lambda i, rs: None, [r, r]),
        "for_loop: init_state[0] and init_state[1] are one Ref{f64[3]}, so that what is written through one would "
        "change the other; pass it once",
    ),
}


@pytest.mark.parametrize(("call", "message"), TWICE.values(), ids=TWICE)
def test_a_ref_is_carried_once(call: Callable[[Any], object], message: str) -> None:
    ref = new_ref(np.zeros(3))
    assert_misuse(lambda: call(ref), ValueError, message, within=call)


def test_parts_that_lie_apart_are_carried() -> None:
    ref = new_ref(np.zeros((2, 3)))

    def step(carry: Any, x: Any) -> Any:
        low, high = carry
        high[...] += low[...] + x
        low[...] += 1.0
        return carry, None

    jit(lambda r: scan(step, (r.at[0], r.at[1]), np.arange(3.0))[1])(ref)
    np.testing.assert_array_equal(ref[...], [[3.0] * 3, [6.0] * 3])


def through_layouts(x: Any) -> Any:
    def body(i: Any, ref: Any) -> None:
        flat, turned = ref.reshape(-1), ref.T
        flat[i + 1] += 0.5 * flat[i]
        turned[i % 3, 0] *= 2.0

    return for_loop(x.size - 1, body, x)


def test_steps_that_write_through_layouts_copy_no_array() -> None:
    want = np.arange(6.0).reshape(2, 3)
    x = to_array(as_value(want))
    flat, turned = want.reshape(-1), want.T
    for i in range(5):
        flat[i + 1] += 0.5 * flat[i]
        turned[i % 3, 0] *= 2.0
    compiled = jit(through_layouts).lower(x).compile()
    np.testing.assert_array_equal(np.asarray(compiled(x)), want)
    gradient = jit(grad(lambda x: through_layouts(x).sum())).lower(x).compile()
    assert (compiled.copies, gradient.copies) == (0, 0)


def over_slices(x: Any, reverse: bool = False) -> Any:
    """A scan over the rows of a Ref and an array; each step reads and writes its row."""
    ref = new_ref(x)

    def step(carry: Any, given: Any) -> Any:
        row, scale = given["row"], given["scale"]
        row[0] += carry
        row.set(row[1] * scale, 1)
        return carry + 1.0, row[...].sum()

    xs = {"row": ref, "scale": np.arange(1.0, 4.0)}
    return *scan(step, 1.0, xs, reverse=reverse), freeze(ref)


def test_a_scan_over_a_ref_gives_each_step_its_slice() -> None:
    base = np.arange(6.0).reshape(3, 2)
    for reverse in (False, True):
        counts = np.array([1.0, 2.0, 3.0])[:: -1 if reverse else 1]
        want = np.stack([base[:, 0] + counts, base[:, 1] * np.arange(1, 4)], axis=1)
        for fun in (over_slices, jit(over_slices, static_argnums=1)):
            carry, sums, held = fun(base, reverse)
            assert float(carry) == 4.0
            np.testing.assert_array_equal(np.asarray(held), want)
            np.testing.assert_array_equal(np.asarray(sums), want.sum(1))
    with disable_jit():
        np.testing.assert_array_equal(np.asarray(over_slices(base)[2]), want_of(base))


def want_of(base: Any) -> Any:
    """What the Ref holds after the steps."""
    steps = np.arange(1.0, 4.0)
    return np.stack([base[:, 0] + steps, base[:, 1] * steps], axis=1)


@pytest.mark.parametrize("wrap", [lambda f: f, jit])
def test_derivatives_and_lanes_of_a_scan_over_a_ref(wrap: Any) -> None:
    base = np.arange(6.0).reshape(3, 2)
    slope = wrap(grad(lambda x: (over_slices(x)[2] ** 2).sum()))(base)
    np.testing.assert_array_equal(
        np.asarray(slope), 2 * want_of(base) * [[1.0, k] for k in (1, 2, 3)]
    )
    lanes = wrap(vmap(lambda x: over_slices(x)[2]))(np.stack([base, -base]))
    np.testing.assert_array_equal(np.asarray(lanes), [want_of(base), want_of(-base)])


def test_a_scan_over_a_ref_copies_no_array() -> None:
    def total(x: Any) -> Any:
        return over_slices(x)[2].sum()

    x = to_array(as_value(np.ones((3, 2))))
    assert [jit(f).lower(x).compile().copies for f in (total, grad(total))] == [0, 0]


def test_refs_to_go_over_may_be_parts_empty_and_carried_beside() -> None:
    ref = new_ref(np.arange(6.0).reshape(3, 2))
    scan(lambda row, x: (row, row.addupdate(x[...])), ref.at[0], ref.at[1:])
    scan(lambda carry, x: (carry, x.addupdate(1.0, 0)), 0.0, ref.T)
    assert ref[...].tolist() == [[7.0, 10.0], [2.0, 3.0], [4.0, 5.0]]
    _, ys, steps = scan(lambda c, x: (c, x.swap(9.0)), 0.0, ref, until=lambda c: c == 0.0)
    assert (int(steps), ref[0].tolist(), ref[1].tolist()) == (1, [9.0, 9.0], [2.0, 3.0])
    empty = scan(lambda c, x: (c, x[...]), 0.0, new_ref(np.zeros((0, 2))))[1]
    assert (empty.shape, ys.shape) == ((0, 2), (3, 2))


@pytest.mark.parametrize("batch_size", [None, 2])
def test_map_over_a_ref_gives_each_call_its_slice(batch_size: int | None) -> None:
    ref = new_ref(np.arange(6.0).reshape(3, 2))
    sums = jit(lambda r: map(lambda x: x.swap(2.0 * x[...]).sum(), r, batch_size=batch_size))(ref)
    assert (sums.tolist(), ref[...].tolist()) == ([1.0, 5.0, 9.0], [[0, 2], [4, 6], [8, 10]])

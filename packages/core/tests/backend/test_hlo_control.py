"""Loops, branches, barriers and calls out of the program."""

from collections.abc import Callable

import numpy as np
import pytest

from fiveloop.core.backend import client, hlo
from fiveloop.core.backend.hlo import Builder, IRValue

Program = Callable[..., list[np.ndarray]]


def test_while_carries_values_and_sees_outer_ones(program: Program) -> None:
    def write(b: Builder, x: IRValue, n: IRValue) -> list[IRValue]:
        one = hlo.constant(b, 1, (), "i4")
        start = hlo.constant(b, 0, (), "i4")
        double = hlo.add(b, x, x)

        def cond(c: list[IRValue]) -> IRValue:
            return hlo.compare(b, c[0], n, "LT")

        def body(c: list[IRValue]) -> list[IRValue]:
            return [hlo.add(b, c[0], one), hlo.add(b, c[1], double)]

        return hlo.while_(b, [start, x], cond, body)

    x, n = np.array([1.0, 2.0], np.float32), np.array(5, np.int32)
    count, total = program(write, x, n)
    assert int(count) == 5
    np.testing.assert_array_equal(total, x * 11)


def test_nested_loops_with_one_carry(program: Program) -> None:
    def write(b: Builder, x: IRValue) -> list[IRValue]:
        ten = hlo.constant(b, 10.0, (), "f4")

        def below(c: list[IRValue]) -> IRValue:
            return hlo.compare(b, c[0], ten, "LT")

        def outer(c: list[IRValue]) -> list[IRValue]:
            inner = hlo.while_(b, c, below, lambda d: [hlo.add(b, d[0], d[0])])
            return [hlo.add(b, inner[0], hlo.constant(b, 1.0, (), "f4"))]

        return hlo.while_(b, [x], below, outer)

    (out,) = program(write, np.array(3.0, np.float32))
    assert float(out) == 13


def test_if_and_case_choose_a_branch(program: Program) -> None:
    def chosen(b: Builder, x: IRValue, flag: IRValue) -> list[IRValue]:
        return hlo.if_(
            b,
            flag,
            lambda: [hlo.add(b, x, x), hlo.constant(b, 1, (), "i4")],
            lambda: [x, hlo.constant(b, 2, (), "i4")],
            [(x.shape, x.dtype), ((), "i4")],
        )

    def case(b: Builder, x: IRValue, which: IRValue) -> list[IRValue]:
        branches = [lambda: [hlo.neg(b, x)], lambda: [x], lambda: [hlo.mul(b, x, x)]]
        return hlo.case(b, which, branches, [(x.shape, x.dtype)])

    def write(b: Builder, x: IRValue, *args: IRValue) -> list[IRValue]:
        picked = [out for flag in args[:2] for out in chosen(b, x, flag)]
        return picked + [out for which in args[2:] for out in case(b, x, which)]

    x = np.array([2.0, 3.0], np.float32)
    flags = [np.array(True), np.array(False)]
    places = [np.array(k, np.int32) for k in (0, 1, 2, 7)]
    outs = program(write, x, *flags, *places)
    for out, want in zip(outs, [2 * x, 1, x, 2, -x, x, x * x, x * x], strict=True):
        np.testing.assert_array_equal(out, want)


def test_a_branch_without_results_is_a_region_without_values() -> None:
    b = hlo.Builder()

    def body(args: list[IRValue]) -> list[IRValue]:
        assert hlo.if_(b, args[0], list, list, []) == []
        return []

    b.function("main", [((), bool)], public=True, body=body)
    assert (
        client.compile_text(b.text(), []).execute(
            [client.put(np.array(True), client.Aval((), np.dtype(bool)))]
        )
        == []
    )


def test_barrier_gives_its_operands_back(program: Program) -> None:
    x, y = np.arange(3.0), np.array(2, np.int32)
    outs = program(lambda b, u, v: hlo.optimization_barrier(b, [u, v]), x, y)
    np.testing.assert_array_equal(outs[0], x)
    assert int(outs[1]) == 2
    assert hlo.optimization_barrier(hlo.Builder(), []) == []


def test_custom_call_is_written_with_its_attributes() -> None:
    b = hlo.Builder()

    def body(args: list[IRValue]) -> list[IRValue]:
        specs: list[hlo.TypeSpec] = [((2,), "f4"), ((2,), "i4")]
        return hlo.custom_call(b, "some.target", args, specs, "api_version = 4 : i32")

    b.function("main", [((5,), "f4")], public=True, body=body)
    wanted = "%0:2 = stablehlo.custom_call @some.target(%arg0) {api_version = 4 : i32}"
    assert f"{wanted} : (tensor<5xf32>) -> (tensor<2xf32>, tensor<2xi32>)" in b.text()


def test_functions_are_called_by_symbol(program: Program) -> None:
    def write(b: Builder, x: IRValue) -> list[IRValue]:
        spec = [(x.shape, x.dtype)]
        square = b.function("square", spec, body=lambda a: [hlo.mul(b, a[0], a[0])])
        again = b.function("square", spec, body=lambda a: b.call(square, a, spec))
        assert (square, again) == ("square", "square_1")
        pair = b.function("pair", spec, body=lambda a: [a[0], *b.call(again, a, spec)])
        return b.call(pair, [x], spec * 2)

    x = np.array([2.0, 3.0], np.float32)
    same, squared = program(write, x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(squared, x * x)


def test_a_body_of_another_type_is_refused() -> None:
    b = hlo.Builder()

    def body(args: list[IRValue]) -> list[IRValue]:
        return hlo.while_(
            b, args, lambda c: hlo.constant(b, False), lambda c: [hlo.convert(b, c[0], "f8")]
        )

    with pytest.raises(TypeError, match=r"while body: expected results \['tensor<f32>'\]"):
        b.function("main", [((), "f4")], public=True, body=body)


def test_what_all_turns_use_may_be_written_before_the_loops() -> None:
    found: list[str | None] = []

    def write(b: Builder, args: list[IRValue]) -> list[IRValue]:
        below = lambda c: hlo.compare(b, c[0], args[0], "LT")

        def inner(c: list[IRValue]) -> list[IRValue]:
            for x, least in ((args[0], 13), (wide, 12), (args[0], 12), (args[0], 13), (c[0], 1)):
                made = b.before_loops(x, "doubled", least, lambda: hlo.add(b, args[0], args[0]))
                found.append(None if made is None else made.name)
            return c

        wide = hlo.broadcast_in_dim(b, args[0], (2,), ())
        outer = lambda c: hlo.while_(b, c, below, inner, 4)
        return hlo.while_(b, args, below, outer, 3, room=4)

    b = Builder()
    b.function("main", [((), "f4")], public=True, body=lambda args: write(b, args))
    first, large, made, again, inside = found
    assert (first, large, inside) == (None, None, None)  # too few turns; no room; made in the loop
    assert made == again
    before, *_ = b.text().split("stablehlo.while")
    assert f"{made} = stablehlo.add" in before

"""`jit`: results, static arguments, caching, methods, the lowered and the compiled program."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from fiveloop.core import ShapeDtype, Tracer, disable_jit, grad, jit, vmap
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.primitives.special import sin
from fiveloop.core.pytree import tree_leaves, tree_structure
from fiveloop.testing.core.compare import assert_all_close, assert_close

X = np.arange(3, dtype=np.float32)


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return [x * 2 for x in (*args, *kwargs.values())]


def test_results_keep_their_structure() -> None:
    got: Any = jit(lambda d: {"r": [d["a"] + 1, (d["b"],)], "n": None})({"a": X, "b": X})
    assert tree_structure(got) == tree_structure({"r": [0, (0,)], "n": None})
    assert_all_close([got["r"][0], got["r"][1][0]], [X + 1, X])


def test_constants_and_repeated_results() -> None:
    got = jit(lambda a: (a, a, 3, np.arange(2)))(X)
    assert_all_close(got, [X, X, np.int32(3), np.arange(2)])


def test_no_arguments_and_no_results() -> None:
    assert float(jit(lambda: 2.5)()) == 2.5
    assert jit(lambda a: None)(X) is None


def test_arguments_of_every_kind() -> None:
    double = jit(lambda a: a * 2)
    for given, want in [
        (to_array(as_value(X)), X * 2),
        (X, X * 2),
        (np.float64(1.5), np.float64(3)),
        (1.5, np.float32(3)),
        (3, np.int32(6)),
        (np.arange(3), np.arange(3) * 2),
        (np.zeros((0, 2), np.float16), np.zeros((0, 2), np.float16)),
        (np.arange(3, dtype=np.uint64), np.arange(3, dtype=np.uint64) * np.uint64(2)),
    ]:
        assert_close(double(given), want)


def test_keyword_arguments() -> None:
    f = jit(lambda a, *, b, c=2.0: a * b + c)
    assert_close(f(X, b=X), X * X + np.float32(2))
    assert_close(f(X, b=X, c=1.0), X * X + np.float32(1))


def test_a_function_is_traced_once_for_each_signature() -> None:
    fun = Counted()
    f = jit(fun)
    for _ in range(3):
        f(X)
        f(to_array(as_value(X)))
    assert fun.count == 1
    f(X.astype(np.float64))
    f(1.0)
    f(2.0)
    assert fun.count == 3
    f(X, X)
    f((X, X)[0])
    assert fun.count == 4
    f.clear_cache()
    f(X)
    assert fun.count == 5


def test_a_lowered_function_is_not_traced_again() -> None:
    fun = Counted()
    f = jit(fun)
    f.lower(X).compile()
    f(X)
    assert fun.count == 1


@pytest.mark.parametrize("size", [7, 8, 9, 60])
def test_many_leaves(size: int) -> None:
    fun = Counted()
    f = jit(lambda d: {k: fun(v)[0] for k, v in d.items()})
    given = {f"k{k:02d}": np.full(2, k, np.float32) for k in range(size)}
    for _ in range(3):
        given = f(given)
    assert fun.count == size
    assert_all_close(tree_leaves(given), [np.full(2, 8 * k, np.float32) for k in range(size)])
    mixed = {**given, "k00": np.float64(1)}
    assert_close(f(mixed)["k00"], np.float64(2))
    assert fun.count == 2 * size


def test_many_leaves_with_static_and_keyword_arguments() -> None:
    f = jit(
        lambda xs, n, *, ys: [x * n + y for x, y in zip(xs, ys, strict=True)], static_argnames="n"
    )
    xs = [np.full(2, k, np.float32) for k in range(10)]
    for n in (2, 3, 2):
        for _ in range(2):
            assert_all_close(f(xs, n, ys=xs), [x * n + x for x in xs])
            assert_all_close(f(xs, n=n, ys=xs), [x * n + x for x in xs])


def test_static_arguments_by_number_and_by_name() -> None:
    def power(x: Any, n: int, flip: bool = False) -> Any:
        for _ in range(n - 1):
            x = x * x
        return -x if flip else x

    by_number, by_name = (
        jit(power, static_argnums=(1, 2)),
        jit(power, static_argnames=("n", "flip")),
    )
    for f in (by_number, by_name):
        assert_close(f(X, 2), X**2)
        assert_close(f(X, n=3), X**4)
        assert_close(f(X, 2, True), -(X**2))
        assert_close(f(X, n=2, flip=True), -(X**2))


def test_options_without_a_function_make_a_decorator() -> None:
    @jit(static_argnums=1)
    def power(x: Any, n: int) -> Any:
        return x**n

    assert float(power(2.0, 3)) == 8.0
    assert repr(power) == "<jit of power>"
    assert float(jit()(sin)(0.0)) == 0.0


def test_static_arguments_that_are_equal_but_of_other_types_are_told_apart() -> None:
    f = jit(lambda x, n: x * n, static_argnums=1)
    assert f(np.int32(3), 2).dtype == np.int32
    assert f(np.int32(3), 2.0).dtype == np.float32
    assert f(np.int32(3), True).dtype == np.int32


def test_a_method_with_a_static_object() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @partial(jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            """Multiply."""
            return x * self.by

    two, three = Scale(2.0), Scale(3.0)
    assert_all_close([two.apply(X), three.apply(X), two.apply(X)], [X * 2, X * 3, X * 2])
    assert Scale.apply.__doc__ == "Multiply."
    assert "stablehlo.multiply" in two.apply.lower(X).as_text()


def test_a_function_jitted_within_a_trace_closes_over_tracers() -> None:
    def outer(a: Any) -> Any:
        return jit(lambda b: a * b)(a + 1.0)

    assert_close(jit(outer)(X), X * (X + 1))
    assert_close(vmap(outer)(X), X * (X + 1))
    assert_close(grad(lambda a: outer(a).sum())(X), 2 * X + 1)


def test_a_function_that_closes_over_a_tracer_is_not_kept() -> None:
    def user(scale: float) -> Any:
        def outer(a: Any) -> Any:
            inner = jit(lambda: a * scale)
            return inner() + inner()

        return jit(outer)(X)

    assert_all_close([user(1.0), user(3.0)], [2 * X, 6 * X])


def test_compiled_programs_run_and_tell_their_costs() -> None:
    lowered = jit(lambda a, n: sin(a) * n, static_argnums=1).lower(ShapeDtype((3,), np.float32), 2)
    assert "stablehlo.sine" in lowered.as_text()
    assert lowered.as_text("hlo").startswith("HloModule") and " sine(" in lowered.as_text("hlo")
    assert lowered.as_text("stablehlo") == lowered.as_text()
    with pytest.raises(ValueError, match="as_text: expected `dialect` to be 'stablehlo' or 'hlo'"):
        lowered.as_text("mhlo")
    with pytest.raises(
        ValueError, match="as_text: expected `platform` to be 'cpu' or 'cuda', got 'gpu'"
    ):
        lowered.as_text(platform="gpu")
    assert str(lowered.jaxpr).count("sin") == 1
    compiled = lowered.compile()
    assert_close(compiled(X), np.sin(X) * 2)
    assert compiled.memory_analysis().argument == X.nbytes
    assert compiled.cost_analysis()["flops"] >= 0
    assert "HloModule" in compiled.as_text()
    assert compiled.copies == 0


def test_unused_arguments() -> None:
    f = jit(lambda a, b: b + 1)
    for _ in range(2):
        assert_close(f(X, 2 * X), 2 * X + 1)


def test_the_name_and_the_docstring_stay() -> None:
    def double(x: Any) -> Any:
        """Twice."""
        return x * 2

    f = jit(double)
    assert (f.__name__, f.__doc__) == ("double", "Twice.")  # type: ignore[attr-defined]  # `update_wrapper` sets it


@jit
def doubled(x: Any) -> Any:
    """A jitted function of this module."""
    return x * 2.0


def test_jitted_functions_are_copied_and_pickled_as_functions_are() -> None:
    assert copy.copy(doubled) is copy.deepcopy(doubled) is doubled
    assert doubled.__reduce__() == "doubled"
    assert repr(doubled) == "<jit of doubled>"
    assert doubled.__doc__ == "A jitted function of this module."


def test_a_mode_is_seen_by_functions_made_before_it_and_in_it() -> None:
    seen: list[bool] = []

    def look(x: Any) -> Any:
        seen.append(isinstance(x, Tracer))
        return x + 1.0

    before = jit(look)
    for _ in range(3):
        before(X)
    with disable_jit():
        before(X)
        within = jit(look)
        within(X)
    for f in (before, within, before, within):
        assert_close(f(X), X + 1.0)
    assert seen == [True, False, False, True]


def test_jit_of_a_partial_function_takes_its_arguments() -> None:
    power = jit(partial(pow, 2.0))
    for _ in range(2):
        assert_close(power(X), 2.0**X)


@dataclass(frozen=True)
class Config:
    scale: Any
    name: str = field(default="", compare=False)


class Pair(NamedTuple):
    one: Any
    other: Any


ALONE: list[Any] = [
    0, 0.0, -0.0, False, np.float32(0), np.float32(-0.0), np.float64(0), np.float64(-0.0), np.int8(0), np.int64(0),
    complex(0, 0), complex(0, -0.0), complex(-0.0, 0), np.complex64(complex(-0.0, 0)), Decimal("0"), Decimal("-0"),
    math.nan, -math.nan, range(0), range(2, 2), None, "0", b"0",
]  # fmt: skip
HOLDERS: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: (1, (x,)),
    lambda x: frozenset([x]),
    lambda x: Config(x),
    lambda x: Pair(x, (x,)),
    lambda x: frozenset([("key", Config((x,)))]),
]


@pytest.mark.parametrize("hold", HOLDERS)
@pytest.mark.parametrize("many", [1, 9])  # leaves, for both ways of a call
def test_static_arguments_that_are_equal_may_differ(hold: Any, many: int) -> None:
    traced: list[Any] = []

    @jit(static_argnums=1)
    def number(xs: Any, s: Any) -> Any:
        traced.append(s)
        return xs[0] * 0 + len(traced)

    xs = [X] * many
    # From Python 3.13 on a dataclass made anew with the same nan is not equal to the one before.
    again = [{hold(x)} == {hold(x)} for x in ALONE]
    assert again.count(False) <= 2
    for turn in range(3):
        numbers = [int(number(xs, hold(x)).max()) for x in ALONE]
        expected = [n if turn == 0 or same else None for n, same in enumerate(again, start=1)]
        assert [n if want else None for n, want in zip(numbers, expected, strict=True)] == expected


def test_static_arguments_that_are_equal_may_differ_by_name() -> None:
    sign = jit(lambda x, *, s: x * math.copysign(1.0, s[0]), static_argnames="s")
    for s in (0.0, -0.0, 0.0, -0.0):
        assert_close(sign(X, s=(s, "a")), X * math.copysign(1.0, s))


def test_static_arguments_of_a_kind_of_the_users_are_compared_by_its_rules() -> None:
    f = jit(lambda x, s: x * s.scale, static_argnums=1)
    f(X, Config(2.0, "one"))
    assert_close(f(X, Config(2.0, "other")), X * 2.0)
    f = jit(lambda x, s: x * np.ravel(s.scale)[0].item(), static_argnums=1)

    @dataclass(eq=False)
    class Mutable:
        scale: list[float]

    held = Mutable([3.0])
    assert_close(f(X, held), X * 3.0)
    assert_close(f(X, Mutable([4.0])), X * 4.0)
    assert_close(f(X, Mutable(([5.0],))), X * 5.0)  # type: ignore[arg-type]  # a tuple without a hash

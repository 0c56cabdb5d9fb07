"""Options of `jit`, and the stages of a jitted function: traced, lowered, compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    ShapeDtype,
    default_matmul_precision,
    grad,
    jit,
    make_jaxpr,
    make_user_context,
    tree_structure,
    vmap,
)
from fiveloop.core.arrays import device_put
from fiveloop.core.backend.client import devices
from fiveloop.testing.core.misuse import assert_misuse

X = np.arange(3, dtype="f4")


def pair(x: Any, y: Any, *, scale: Any = 2.0) -> dict[str, Any]:
    return {"sum": x + y, "product": x * scale}


def test_each_stage_knows_the_structures_and_the_types() -> None:
    traced = jit(pair).trace(X, y=ShapeDtype((3,), "float32"))
    lowered = traced.lower()
    compiled = lowered.compile()
    for stage in (traced, lowered, compiled):
        assert stage.in_tree == tree_structure(((0,), {"y": 0}))
        assert stage.out_tree == tree_structure({"sum": 0, "product": 0})
        assert [str(a) for a in stage.in_avals] == ["f32[3]", "f32[3]"]
        assert [str(a) for a in stage.out_avals] == ["f32[3]", "f32[3]"]
        assert stage.out_info == {n: ShapeDtype((3,), np.dtype("f4")) for n in ("sum", "product")}
        assert stage.fun_name == "pair"
        assert stage.jaxpr is traced.jaxpr
    assert jit(pair).eval_shape(X, X) == traced.out_info
    assert compiled(X, y=X)["sum"].tolist() == [0, 2, 4]


def test_a_stage_leaves_static_arguments_out_of_the_structure() -> None:
    f = jit(
        lambda x, n, *, how: x * n if how == "times" else x, static_argnums=1, static_argnames="how"
    )
    lowered = f.lower(X, 3, how="times")
    assert lowered.in_tree == tree_structure(((0,), {}))
    assert lowered.compile()(X).tolist() == [0, 3, 6]


def test_a_compiled_call_checks_types_also_once_it_is_fast() -> None:
    compiled = jit(lambda x, y: x + y).lower(X, X).compile()
    x = device_put(X)
    for _ in range(3):
        assert compiled(x, x).tolist() == [0, 2, 4]
        assert compiled(X, x).tolist() == [0, 2, 4]
        with pytest.raises(TypeError, match=r"argument `y` must be f32\[3\], got i32"):
            compiled(x, device_put(X.astype("i4")))
        with pytest.raises(TypeError, match="of structure"):
            compiled(x)


def test_unused_arguments_stay_where_that_is_asked_for() -> None:
    unused = lambda x, y: x + 1.0
    for keep, count in ((False, 1), (True, 2)):
        f = jit(unused, keep_unused=keep)
        main = next(t for t in f.lower(X, X).as_text().splitlines() if "@main" in t)
        assert main.count("%arg") == count
        for _ in range(3):
            assert f(device_put(X), device_put(X)).tolist() == [1, 2, 3]
            assert f(X, 2.0).tolist() == [1, 2, 3]


def test_an_inlined_function_is_compiled_in_place() -> None:
    for inline, functions in ((False, 2), (True, 1)):
        f = jit(lambda x: x * 2 + x, inline=inline)
        text = jit(lambda x, f=f: f(x) + 1, static_argnames="f").lower(X).as_text()
        assert text.count("func.func") == functions


def test_an_inlined_function_gives_its_equations_to_the_jaxpr_around_it() -> None:
    f = jit(lambda x: {"y": x * 2}, inline=True)
    outer = make_jaxpr(lambda x: f(f(x)["y"])["y"] + 1)(X)
    assert [eqn.primitive.name for eqn in outer.eqns] == ["mul", "mul", "add"]


def test_the_device_is_one_that_there_is() -> None:
    assert jit(lambda x: x * 2, device=devices()[0])(X).tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match=r"jit of f: expected `device` to be one of .*got 'tpu:0'"):

        @jit(device="tpu:0")
        def f(x: Any) -> Any:
            return x


def test_xla_options_are_part_of_the_program() -> None:
    f = jit(lambda x: x * 2, compiler_options={"xla_cpu_enable_fast_math": True})
    assert f(X).tolist() == [0, 2, 4]
    lowered = jit(lambda x: x * 3).lower(X)
    assert lowered.compile({"xla_llvm_disable_expensive_passes": "true"})(X).tolist() == [0, 3, 6]
    with pytest.raises(ValueError, match="jit of <lambda>: compiler_options: expected the name of"):
        jit(lambda x: x, compiler_options={"threads": 3})
    with pytest.raises(ValueError, match="compile: compiler_options: expected the name of"):
        lowered.compile(compiler_options={"opt": 3})
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"xla_no_such_option": 1}, "No such compile option: 'xla_no_such_option'"),
        ({"xla_cpu_enable_fast_math": "maybe"}, "'maybe' is not a valid bool value"),
        ({"xla_cpu_enable_fast_math": None}, "'None' is not a valid bool value"),
        ({"xla_cpu_enable_fast_math": 1}, "'1' is not a valid bool value"),
    )
    for options, said in wrong:
        with pytest.raises(ValueError, match=f"compiler_options: XLA says: .*{said}"):
            jit(lambda x: x * 5, compiler_options=options)(X)


def test_xla_options_that_are_equal_may_differ() -> None:
    fun = lambda x: x * 7
    with pytest.raises(ValueError, match="'1' is not a valid bool value"):
        jit(fun, compiler_options={"xla_cpu_enable_fast_math": 1})(X)
    assert jit(fun, compiler_options={"xla_cpu_enable_fast_math": True})(X).tolist() == [0, 7, 14]


NO_SPEC = (
    "must be an array or a scalar, got ShapeDtype(shape=(3,), dtype='f4') of type ShapeDtype; "
)
OF_X = "jit of same: argument `x`"


@jit
def same(x: Any) -> Any:
    return x


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: same.lower(ShapeDtype((-1,), "f4")),
            ValueError,
            f"{OF_X}: expected no negative sizes in `shape`, got (-1,)",
        ),
        (
            lambda: same.lower({"a": ShapeDtype((2,), "O")}),
            TypeError,
            f"{OF_X}['a']: expected `dtype` to be one of numbers or bools, got object",
        ),
        (
            lambda: same(ShapeDtype((3,), "f4")),
            TypeError,
            f"{OF_X} {NO_SPEC}make its class a tree of its fields with `fiveloop.core.register_dataclass`",
        ),
        (
            lambda: jit(lambda x: x, compiler_options=[("xla_a", 1)]),  # type: ignore[call-overload]  # the mistake
            TypeError,
            "jit of <lambda>: compiler_options: expected a dict of XLA's options by their names, got [('xla_a', 1)] of "
            "type list",
        ),
        (
            lambda: default_matmul_precision("half"),
            ValueError,
            "default_matmul_precision: expected one of 'default', 'fastest', 'bfloat16', 'high', 'bfloat16_3x', "
            "'tensorfloat32', 'highest', 'float32' or None, got 'half'",
        ),
    ],
    ids=["shape", "dtype", "call", "options", "precision"],
)
def test_what_descriptions_and_options_must_be(
    call: Callable[[], object], kind: type[Exception], message: str
) -> None:
    assert_misuse(call, kind, message)


def test_a_compiled_function_cannot_be_traced() -> None:
    compiled = same.lower(X).compile()

    def user(x: Any) -> Any:
        return compiled(x)

    assert_misuse(
        lambda: jit(user)(X),
        TypeError,
        "compiled same: argument `x` must be f32[3], got Traced<f32[3]>; call the jitted function, which can be traced",
        within=user,
    )


def test_the_precision_of_products_is_the_blocks() -> None:
    f = jit(lambda x: x @ x)
    m = np.ones((2, 2), "f4")
    plain = f.lower(m).as_text()
    with default_matmul_precision("float32"):
        chosen = f.lower(m).as_text()
        assert "HIGHEST" in chosen
        assert "HIGHEST" in jit(grad(lambda x: (x @ x).sum())).lower(m).as_text()
        with default_matmul_precision(None):
            assert f.lower(m).as_text() == plain
    assert f.lower(m).as_text() == plain != chosen
    with pytest.raises(ValueError, match=r"expected one of 'default', .*got 'half'"):
        default_matmul_precision("half")


class Scaled:
    """A method, a static one and one of the class, each jitted; and an object that is called."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    @partial(jit, static_argnums=0)
    def times(self, x: Any, y: Any = 1.0) -> Any:
        return x * self.scale * y

    @staticmethod
    @jit
    def double(x: Any) -> Any:
        return x * 2

    @classmethod
    def named(cls, x: Any) -> Any:
        return x * len(cls.__name__)

    def __call__(self, x: Any) -> Any:
        return x + self.scale


def test_methods_partials_names_and_defaults() -> None:
    two, three = Scaled(2.0), Scaled(3.0)
    for _ in range(2):
        assert two.times(X).tolist() == [0, 2, 4]
        assert three.times(X, y=2.0).tolist() == [0, 6, 12]
        assert Scaled.double(X).tolist() == two.double(X).tolist() == [0, 2, 4]
        assert jit(Scaled.named)(X).tolist() == [0, 6, 12]
        assert jit(two)(X).tolist() == [2, 3, 4]
        assert jit(two.__call__)(x=X).tolist() == [2, 3, 4]
    assert two.times.lower(X).out_info == two.times.eval_shape(X) == two.times.trace(X).out_info
    of_two = jit(partial(pair, scale=3.0))
    assert of_two(X, X)["product"].tolist() == of_two(y=X, x=X)["product"].tolist() == [0, 3, 6]
    assert of_two(X, y=X, scale=4.0)["product"].tolist() == [0, 4, 8]

    @jit
    def defaults(x: Any, n: Any = 2, *more: Any, last: Any = 1, **named: Any) -> Any:
        """A docstring."""
        return x * n * last + sum(more) + sum(named.values())

    assert defaults(X).tolist() == defaults(x=X, n=2).tolist() == [0, 2, 4]
    assert defaults(X, 1, 1.0, 2.0, last=2, k=3.0).tolist() == [6, 8, 10]
    assert list(inspect.signature(defaults).parameters) == ["x", "n", "more", "last", "named"]
    named: Any = defaults
    assert (named.__name__, named.__doc__) == ("defaults", "A docstring.")


def test_a_change_of_context_traces_once_and_back_again_not_at_all() -> None:
    scale = make_user_context(1.0, name="scale")
    traces: list[float] = []

    @jit
    def f(x: Any) -> Any:
        traces.append(scale.value)
        return x * scale.value

    def outer(x: Any) -> Any:
        return f(x) + vmap(f)(x)

    for _ in range(3):
        assert f(X).tolist() == [0, 1, 2]
        with scale(3.0):
            assert f(X).tolist() == [0, 3, 6]
            with scale(1.0):
                assert f(X).tolist() == [0, 1, 2]
    assert traces == [1.0, 3.0]
    with scale(5.0):
        assert jit(outer)(X).tolist() == [0, 10, 20]
    other = make_user_context(7, name="scale")
    with other(8), scale(2.0):
        assert (other.value, scale.value) == (8, 2.0)
    with pytest.raises(TypeError, match=r"scale #\d+: expected a hashable value.*got \[1\]"):
        scale([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("chosen", [(True, 1, 1.0), (0.0, -0.0), ((1,), (1.0,))])
def test_contexts_that_are_equal_but_not_the_same_are_told_apart(chosen: tuple[Any, ...]) -> None:
    scale = make_user_context(chosen[0], name="scale")
    traces: list[str] = []

    @jit
    def f(x: Any) -> Any:
        traces.append(repr(scale.value))
        return x

    for value in chosen * 2:
        with scale(value):
            f(X)
    assert traces == [repr(value) for value in chosen]

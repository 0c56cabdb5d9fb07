"""What rules get wrong: the message names the rule, the leaf and both types, and ends with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    custom_derivative,
    custom_jvp,
    custom_linear_solve,
    custom_root,
    custom_vjp,
    custom_vmap,
    grad,
    jit,
    jvp,
    linearize,
    vmap,
)
from fiveloop.core.ir.source import function_source
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.misuse import assert_misuse, assert_within, raised

X = np.arange(3, dtype=np.float32)
Case = tuple[Callable[[], object], str]


def f(x: Any) -> Any:
    return x * 2.0


def tree(x: Any) -> Any:
    return {"a": x, "b": x}


def forward(rule: Any, fun: Any = f) -> Callable[[], object]:
    with_rule = custom_jvp(fun)
    with_rule.defjvp(rule)
    return lambda: jvp(with_rule, (X,), (X,))


def backward(fwd: Any, bwd: Any, fun: Any = f) -> Callable[[], object]:
    with_rule = custom_vjp(fun)
    with_rule.defvjp(fwd, bwd)
    return lambda: grad(lambda x: with_rule(x).sum())(X)


def rule(primals: Any, tangents: Any) -> Any:
    return None


def none(p: Any, t: Any) -> Any:
    return f(p[0])


def shape(p: Any, t: Any) -> Any:
    return f(p[0]), t[0].sum()


def dtype(p: Any, t: Any) -> Any:
    return tree(p[0]), {"a": t[0], "b": np.zeros(3)}


def structure(p: Any, t: Any) -> Any:
    return tree(p[0]), {"a": t[0]}


def another(p: Any, t: Any) -> Any:
    return p[0].sum(), t[0].sum()


def plain_fwd(x: Any) -> Any:
    return f(x), x


def no_residuals(x: Any) -> Any:
    return f(x)


def odd_residuals(x: Any) -> Any:
    return f(x), {"kind": "odd"}


def no_tuple(res: Any, ct: Any) -> Any:
    return ct


def too_many(res: Any, ct: Any) -> Any:
    return ct, ct


def bad_ct(res: Any, ct: Any) -> Any:
    return (ct.sum(),)


def bad_tree(res: Any, ct: Any) -> Any:
    return ({"a": ct},)


JVP: dict[str, Case] = {
    "no pair": (
        forward(rule),
        f"the jvp rule of f, {function_source(rule)}: it must return a pair (result, tangent of the result), got "
        "NoneType",
    ),
    "no tangent": (
        forward(none),
        f"the jvp rule of f, {function_source(none)}: it must return a pair (result, tangent of the result), got "
        "f32[3]",
    ),
    "shape": (
        forward(shape),
        f"the jvp rule of f, {function_source(shape)}: it must give the tangent of the result the type of the result, "
        "f32[3], got f32[]",
    ),
    "dtype": (
        forward(dtype, tree),
        f"the jvp rule of tree, {function_source(dtype)}: it must give the tangent of the result['b'] the type of the "
        "result, f32[3], got f64[3]",
    ),
    "structure": (
        forward(structure, tree),
        f"the jvp rule of tree, {function_source(structure)}: it must return the structure of the results, which "
        "differs: expected dict with keys ['a'], ['b'], got dict with keys ['a']",
    ),
}

VJP: dict[str, Case] = {
    "no residuals": (
        backward(no_residuals, no_tuple),
        f"the fwd rule of f, {function_source(no_residuals)}: it must return a pair (result, residuals), got f32[3]",
    ),
    "residuals that are no arrays": (
        backward(odd_residuals, no_tuple),
        f"the fwd rule of f, {function_source(odd_residuals)}: the residual['kind'] must be an array or a scalar, got "
        "'odd' of type str",
    ),
    "no tuple": (
        backward(plain_fwd, no_tuple),
        f"the bwd rule of f, {function_source(no_tuple)}: it must return a tuple with a cotangent for each of 1 "
        "arguments, got f32[3]",
    ),
    "too many": (
        backward(plain_fwd, too_many),
        f"the bwd rule of f, {function_source(too_many)}: it must return a tuple with a cotangent for each of 1 "
        "arguments, got one of length 2",
    ),
    "shape": (
        backward(plain_fwd, bad_ct),
        f"the bwd rule of f, {function_source(bad_ct)}: it must give the cotangent of argument [0] the type of the "
        "argument, f32[3], got f32[]",
    ),
    "structure": (
        backward(plain_fwd, bad_tree),
        f"the bwd rule of f, {function_source(bad_tree)}: it must return the structure of the arguments, which differs "
        "at [0]: expected an array, got dict",
    ),
}


@pytest.mark.parametrize("case", JVP.values(), ids=JVP.keys())
def test_jvp_rules(case: Case) -> None:
    assert_misuse(case[0], TypeError, case[1])


@pytest.mark.parametrize("case", VJP.values(), ids=VJP.keys())
def test_vjp_rules(case: Case) -> None:
    error = _raised(case[0])
    message, _, place = str(error).partition("\n  at ")
    assert (type(error), message) == (TypeError, case[1])
    assert place.startswith(__file__)


def _raised(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("expected an error")


def test_a_rule_that_gives_another_result_than_its_function() -> None:
    with_rule = custom_jvp(f)
    with_rule.defjvp(another)
    message = (
        f"the jvp rule of f, {function_source(another)}: it must give what f gives, f32[3], as the "
        "result, got f32[]"
    )
    assert_misuse(lambda: jit(lambda x: jvp(with_rule, (x,), (x,)))(X), TypeError, message)


def test_the_wrong_tree_by_a_rule_in_a_compiled_function() -> None:
    def fwd(x: Any) -> Any:
        return {"a": x}, x

    with_rule = custom_vjp(tree)
    with_rule.defvjp(fwd, no_tuple)
    error = _raised(lambda: jit(grad(lambda x: with_rule(x)["a"].sum()))(X))
    start = f"the fwd rule of tree, {function_source(fwd)}: it must give a result of the structure that tree gives, "
    assert str(error).startswith(start)


CALLS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no jvp": (
        lambda: custom_jvp(f)(X),
        TypeError,
        "custom_jvp of f: expected a rule before the first call, got none; give one with `f.defjvp(rule)`",
    ),
    "no vjp": (
        lambda: custom_vjp(f)(X),
        TypeError,
        "custom_vjp of f: expected rules before the first call, got none; give them with `f.defvjp(fwd, bwd)`",
    ),
    "no function": (
        lambda: custom_jvp(3),  # type: ignore[arg-type]
        TypeError,
        "custom_jvp: expected a function, got 3 of type int",
    ),
    "no rule at all": (
        lambda: custom_derivative(f),
        TypeError,
        "custom_derivative of f: expected a rule, got none; give a jvp, or fwd and bwd, or all of them",
    ),
    "half of a rule": (
        lambda: custom_derivative(f, fwd=plain_fwd),
        TypeError,
        "custom_derivative of f: expected both fwd and bwd or neither, got only fwd; give bwd too",
    ),
    "static arguments that are not there": (
        lambda: custom_jvp(f, nondiff_argnums=(1,)),
        ValueError,
        "custom_jvp of f: nondiff_argnums must name one of its 1 positional arguments, got 1",
    ),
    "static arguments by name": (
        lambda: custom_vjp(f, nondiff_argnums=("x",)),  # type: ignore[arg-type]
        TypeError,
        "custom_vjp of f: nondiff_argnums must be an integer or a tuple of them, got ('x',); names go into "
        "nondiff_argnames",
    ),
    "static arguments by names that it has not": (
        lambda: custom_derivative(f, jvp=plain_fwd, nondiff_argnames="n"),
        ValueError,
        "custom_jvp of f: nondiff_argnames names 'n', which is no argument of it",
    ),
    "static arguments that have no place": (
        lambda: custom_jvp(lambda x, *, n: x, nondiff_argnames="n"),
        ValueError,
        "custom_jvp of <lambda>: nondiff_argnames must name some of its positional arguments ['x'], got 'n'",
    ),
    "defjvps beside static arguments": (
        lambda: custom_jvp(lambda n, x: x, nondiff_argnums=0).defjvps(None),
        TypeError,
        "defjvps of <lambda>: expected a function without nondiff_argnums; use `defjvp`",
    ),
}


@pytest.mark.parametrize("case", CALLS.values(), ids=CALLS.keys())
def test_calls(case: tuple[Callable[[], object], type[Exception], str]) -> None:
    assert_misuse(*case)


def test_arguments_that_do_not_fit() -> None:
    def g(x: Any, *, y: Any = 1.0) -> Any:
        return x

    with_rule = custom_jvp(g)
    with_rule.defjvp(rule)
    assert_misuse(
        lambda: with_rule(X, y=2.0),
        TypeError,
        "custom_jvp of g: expected arguments that have a place, since rules take them by place, got the keyword-only "
        "['y']; bind them with `functools.partial` before giving the rule",
    )
    assert_misuse(
        lambda: with_rule(),  # type: ignore[call-arg]
        TypeError,
        "custom_jvp of g: expected arguments for g(x: 'Any', *, y: 'Any' = 1.0) -> 'Any', but: missing a required "
        "argument: 'x'",
    )


def test_a_traced_value_as_a_static_argument_of_a_vjp() -> None:
    with_rule = custom_vjp(lambda n, x: x * n, nondiff_argnums=0)
    with_rule.defvjp(lambda n, x: (x * n, x), lambda n, res, ct: (ct,))
    assert_misuse(
        lambda: jit(lambda n: with_rule(n, 1.0))(2.0),
        TypeError,
        "custom_vjp of <lambda>: expected Python values and concrete arrays as the arguments that nondiff_argnums "
        "names, got Traced<f32*[]> as number 0; take it out of nondiff_argnums, and let bwd return None for it",
    )


def _no_forward(why: str, bwd: Any) -> str:
    return (
        f"f has no forward mode: it would be derived by transposing {function_source(bwd)}, which must be linear in "
        f"the cotangent, but {why}; give it a jvp too, with `custom_derivative`"
    )


def not_linear(res: Any, ct: Any) -> Any:
    return (sin(ct),)


def affine(res: Any, ct: Any) -> Any:
    return (ct + res,)


def constant(res: Any, ct: Any) -> Any:
    return (res,)


@pytest.mark.parametrize(
    ("bwd", "why"),
    [
        (
            not_linear,
            "`sin` has no transpose: it is not linear; differentiate it first (`jvp`, `linearize`)",
        ),
        (affine, "it adds something to the cotangent that does not depend on it"),
        (constant, "it gives a cotangent that does not depend on the one it is given"),
    ],
)
def test_a_backward_rule_that_gives_no_forward_mode(bwd: Any, why: str) -> None:
    with_rule = custom_vjp(f)
    with_rule.defvjp(plain_fwd, bwd)
    grad(lambda x: with_rule(x).sum())(X)
    for call in (
        lambda: jvp(with_rule, (X,), (X,)),
        lambda: jit(lambda x: jvp(with_rule, (x,), (x,)))(X),
    ):
        assert_misuse(call, TypeError, _no_forward(why, bwd))
    assert linearize(with_rule, X)[0].shape == (3,)


def pair(x: Any) -> Any:
    return x, x


def not_a_pair(f: Any, b: Any) -> Any:
    return b


def test_equations() -> None:
    assert_misuse(
        lambda: custom_root(pair, X, lambda f, x: x, lambda g, y: y),
        TypeError,
        "custom_root: expected f, pair, to return what initial_guess is, PyTreeDef(*), got PyTreeDef((*, *))",
    )
    assert_misuse(
        lambda: custom_linear_solve(lambda x: x.sum(), X, lambda f, b: b),
        TypeError,
        "custom_linear_solve: expected matvec, <lambda>, to return what b is, f32[3], got f32[] for leaf of it",
    )
    assert_misuse(
        lambda: custom_linear_solve(lambda x: x, X, not_a_pair, has_aux=True),
        TypeError,
        "custom_linear_solve: expected solve to return a pair (solution, auxiliary) for has_aux, got Array",
    )
    error = _raised(
        lambda: grad(lambda b: custom_linear_solve(lambda x: x, b, lambda f, b: b).sum())(X)
    )
    message, _, place = str(error).partition("\n  at ")
    assert message == (
        "the linear solve of <lambda> has no transpose: expected transpose_solve or symmetric=True, got neither; "
        "give one"
    )
    assert place.startswith(__file__)


def rule_of_the_jvp(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[0] + np.ones(2, np.float32)


def rule_of_bwd(_: Any, ct: Any) -> Any:
    return (ct + np.ones(2, np.float32),)


def solver_of_tangents(_: Any, y: Any) -> Any:
    return y + np.ones(2, np.float32)


def root(x: Any) -> Any:
    return custom_root(lambda z: z - x, X, lambda f, z: z, solver_of_tangents)


def with_jvp(x: Any) -> Any:
    fun = custom_jvp(f)
    fun.defjvp(rule_of_the_jvp)
    return fun(x)


def with_bwd(x: Any) -> Any:
    fun = custom_vjp(f)
    fun.defvjp(lambda x: (x, None), rule_of_bwd)
    return fun(x)


@pytest.mark.parametrize(
    ("fun", "rule"),
    [(with_jvp, rule_of_the_jvp), (with_bwd, rule_of_bwd), (root, solver_of_tangents)],
)
def test_the_line_is_that_of_the_rule(fun: Any, rule: Any) -> None:
    def total(x: Any) -> Any:
        return fun(x).sum()

    ways: list[Callable[[], object]] = [
        lambda: grad(total)(X),
        lambda: jit(grad(total))(X),
        lambda: grad(jit(total))(X),
        lambda: vmap(grad(total))(np.stack([X, X])),
        lambda: jit(vmap(grad(total)))(np.stack([X, X])),
    ]
    for way in ways:
        message, _, place = str(raised(way)).partition("\n  at ")
        assert message == "add: expected shapes that broadcast together, got (3,), (2,)"
        assert_within(rule, place)


@pytest.mark.parametrize("wrap", [lambda f: f, jit])
def test_what_a_solver_raises_is_the_user_s(wrap: Any) -> None:
    def refuse(f: Any, y: Any, a: Any) -> Any:
        raise ArithmeticError(f"no solution of {(a * y).shape}")

    def root(a: Any) -> Any:
        return custom_root(lambda x: x * x - a, 1.0, lambda f, x: x, lambda g, y: refuse(g, y, a))

    def system(a: Any) -> Any:
        by_a = lambda f, b: a / a * b / f(1.0)
        return custom_linear_solve(lambda x: a * x, 2.0, by_a, lambda f, b: refuse(f, b, a))

    for f in (root, system):
        wrap(f)(2.0)
        for g, x in ((grad(f), np.float32(2.0)), (vmap(grad(f)), np.ones(2, np.float32))):
            error = raised(lambda g=g, x=x: wrap(g)(x))  # type: ignore[misc]
            assert isinstance(error, ArithmeticError) and str(error) == "no solution of ()"


@pytest.mark.parametrize("wrap", [lambda f: f, jit])
def test_what_solvers_return_is_checked_at_the_call(wrap: Any) -> None:
    tree = {"u": X, "v": np.float32(1.0)}
    same = lambda f, b: b
    head = "custom_linear_solve: expected "
    cases: list[tuple[Any, Any, Any, str]] = [
        (X, lambda f, b: (b, b), same, "solve, <lambda>, to return what b is, PyTreeDef(*), got"),
        (X, lambda f, b: b[:2], same, "solve, <lambda>, to return what b is, f32[3], got f32[2]"),
        (X, same, lambda f, b: [b], "transpose_solve, <lambda>, to return what b is, PyTreeDef(*)"),
        (
            X,
            same,
            lambda f, b: b.sum(),
            "transpose_solve, <lambda>, to return what b is, f32[3], g",
        ),
        (X, same, lambda f, b: b.astype("float64"), "transpose_solve, <lambda>, to return what b "),
        (tree, same, lambda f, b: {"u": b["u"]}, "transpose_solve, <lambda>, to return what b is,"),
        (tree, same, lambda f, b: {**b, "v": b["u"]}, "transpose_solve, <lambda>, to return what "),
    ]
    for b, solve, transposed, message in cases:
        error = _raised(
            lambda b=b, solve=solve, transposed=transposed: wrap(  # type: ignore[misc]
                lambda b: custom_linear_solve(lambda x: x, b, solve, transposed)
            )(b)
        )
        assert type(error) is TypeError
        assert str(error).startswith(head + message)
        assert __file__ in str(error)


@pytest.mark.parametrize("decorator", [custom_jvp, custom_vjp, custom_vmap])
def test_wrong_arguments_are_those_of_the_decorator(decorator: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{decorator.__name__}\(\) missing 1 .*'fun'"):
        decorator()
    with pytest.raises(TypeError, match=rf"^{decorator.__name__}\(\) got an .* 'other'"):
        decorator(abs, other=1)

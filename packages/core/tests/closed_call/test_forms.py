"""`closed_call` of a function and of a jaxpr: one equation under every trace, and what need not pass through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    Jaxpr,
    RuleError,
    TypecheckError,
    closed_call,
    disable_jit,
    grad,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    vjp,
    vmap,
)
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.extend import (
    Eqn,
    ShapedArray,
    Var,
    as_value,
    bind,
    call_jaxpr,
    dce,
    eval_jaxpr,
    linearize_jaxpr,
    new_eqn,
    transpose_jaxpr,
    typecheck,
)
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.testing.core.compare import assert_all_close, assert_close
from fiveloop.testing.core.oracle import run_jaxpr

Function = Callable[..., Any]
X = np.array([0.4, -0.7, 1.1])
TABLE = np.array([1.0, 2.0, 3.0])
F64 = ShapedArray((3,), np.dtype(np.float64))


def plain(x: Any) -> Any:
    return sp.sin(x) * TABLE + x


def run(jaxpr: Jaxpr) -> Function:
    return lambda x: eval_jaxpr(jaxpr, [as_value(x)])[0]


BODY = make_jaxpr(plain)(X)
FORMS: dict[str, Function] = {
    "of a function": closed_call(plain),
    "of a jaxpr": lambda x: call_jaxpr(BODY, [as_value(x)])[0],
    "of a function of a jaxpr": closed_call(run(BODY)),
    "of a jaxpr of a call": run(make_jaxpr(closed_call(plain))(X)),
}
TRACES: dict[str, Callable[[Function], Function]] = {
    "eager": lambda f: lambda x: f(x),
    "staged": jit,
    "jvp": lambda f: lambda x: jvp(f, (x,), (TABLE,)),
    "known and unknown": lambda f: lambda x: linearize(f, x)[1](TABLE),
    "transposed": lambda f: lambda x: vjp(f, x)[1](TABLE),
    "batched": lambda f: lambda x: vmap(f, axis_size=2, in_axes=None)(x),
    "batched operands": lambda f: lambda x: vmap(f)(x * TABLE[:2, None]),
    "staged derivative": lambda f: jit(lambda x: vjp(f, x)[1](TABLE)),
    "as python": lambda f: lambda x: as_python(f, x),
}


def nothing(f: Function) -> Function:
    return f


def as_python(f: Function, x: Any) -> Any:
    with disable_jit():
        return f(x)


def names(jaxpr: Jaxpr) -> list[str]:
    return [eqn.primitive.name for eqn in jaxpr.eqns]


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_function_under_every_trace(form: str, trace: str) -> None:
    under = TRACES[trace]
    assert_all_close(flat(under(FORMS[form])(X)), flat(under(plain)(X)))


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("transform", ["nothing", "jvp", "transposed", "batched operands"])
def test_the_forms_are_written_alike(transform: str) -> None:
    written = set()
    for form in FORMS.values():
        jaxpr = make_jaxpr(TRACES.get(transform, nothing)(form))(X)
        typecheck(jaxpr)
        written.add(str(jaxpr).replace("<lambda>", "plain"))
    assert len(written) == 1, written
    assert "closed_call[name=plain]" in written.pop()


# what is at hand outside


def test_results_that_are_operands_or_other_results_do_not_pass() -> None:
    def fun(x: Any, y: Any) -> Any:
        z = sp.sin(x)
        return x, z, y, z, x, 2.0, TABLE

    jaxpr = make_jaxpr(closed_call(fun))(X, X)
    (eqn,) = jaxpr.eqns
    x, y = jaxpr.invars
    (z,) = eqn.outvars
    assert jaxpr.outvars[:5] == (x, z, y, z, x)
    got = closed_call(fun)(X, 2 * X)
    assert_all_close(got, [X, np.sin(X), 2 * X, np.sin(X), X, np.float32(2.0), TABLE])


@pytest.mark.parametrize("transform", ["jvp", "batched operands"])
def test_tangents_and_batches_that_are_operands_do_not_pass(transform: str) -> None:
    call = closed_call(lambda x: (x, x + 1.0, sp.sin(x)))
    jaxpr = make_jaxpr(TRACES[transform](call))(X)
    for eqn in jaxpr.eqns:
        if eqn.primitive is closed_call_p:
            inner = eqn.params.jaxpr
            assert not set(inner.outvars) & set(inner.invars)
            assert len(set(inner.outvars)) == len(inner.outvars)


def test_a_call_of_which_nothing_is_left_is_none() -> None:
    assert names(make_jaxpr(closed_call(lambda x, y: (y, x)))(X, X)) == []
    x = as_value(X)
    assert closed_call(lambda x: x)(x) is x


def test_an_operand_is_kept_once_however_often_it_comes_out() -> None:
    call = closed_call(lambda x: (x, ew.exp(x), x))
    jaxpr = make_jaxpr(lambda x: [sp.sin(y) * ew.exp(y) for y in call(x)])(X)
    known, _, _, num_res = linearize_jaxpr(jaxpr, (True,))
    kept = known.outvars[len(known.outvars) - num_res :]
    assert len(set(kept)) == len(kept)
    assert known.invars[0] not in kept or kept.count(known.invars[0]) == 1


def test_a_residual_that_is_a_result_is_not_passed_twice() -> None:
    jaxpr = make_jaxpr(closed_call(lambda x: (ew.exp(x), sp.tanh(x) * x)))(X)
    known, linear, _, num_res = linearize_jaxpr(jaxpr, (True,))
    (eqn,) = known.eqns
    # exp is its own derivative: the result is the residual.
    assert known.outvars[0] in known.outvars[2:]
    assert len(set(eqn.params.jaxpr.outvars)) == len(eqn.params.jaxpr.outvars)
    assert num_res == len(linear.invars) - 1


def test_a_weak_operand_keeps_the_type_of_the_jaxpr() -> None:
    jaxpr = make_jaxpr(lambda x: (x, x * 2.0))(np.float32(1.0))
    first, second = call_jaxpr(jaxpr, [as_value(1.0)])
    assert not first.weak_type and not second.weak_type


# the columns


def test_dead_results_and_operands_leave_the_call() -> None:
    jaxpr = make_jaxpr(closed_call(lambda x, y, z: (sp.sin(x), x * y, z + 1.0)))(X, X, X)
    for used, operands, inside in [
        ((True, False, False), 1, ["sin"]),
        ((False, True, False), 2, ["mul"]),
        ((True, False, True), 2, ["sin", "add"]),
        ((True, True, True), 3, ["sin", "mul", "add"]),
    ]:
        smaller, mask = dce(jaxpr, used, keep_ins=False)
        typecheck(smaller)
        (eqn,) = smaller.eqns
        assert len(eqn.invars) == len(smaller.invars) == sum(mask) == operands
        assert names(eqn.params.jaxpr) == inside
        assert len(eqn.outvars) == sum(used)
    assert dce(jaxpr, (False,) * 3)[0].eqns == ()


def test_operands_must_fit_the_jaxpr() -> None:
    for operands, message in [
        ([X, X], "ClosedCall: expected 1 operands, got 2"),
        ([X[:2]], "ClosedCall: operand 0 must be f64[3], got f64[2]"),
        ([X.astype(np.float32)], "ClosedCall: operand 0 must be f64[3], got f32[3]"),
    ]:
        with pytest.raises(TypeError) as e:
            call_jaxpr(BODY, [as_value(x) for x in operands])
        assert str(e.value).startswith(message)


def test_results_must_be_those_of_the_jaxpr() -> None:
    v = Var(F64)
    eqn = new_eqn(closed_call_p, [v], ClosedCallParams(BODY), [Var(F64)], None)
    typecheck(Jaxpr([v], [eqn], eqn.outvars))
    wrong = eqn.replace(outvars=[Var(ShapedArray((2,), F64.dtype))])
    with pytest.raises(TypecheckError) as e:
        typecheck(Jaxpr([v], [wrong], wrong.outvars))
    assert "expected results of types [f64[3]], got [f64[2]]" in str(e.value)
    assert "closed_call" in str(e.value)


def test_a_body_that_is_not_well_typed_is_found() -> None:
    v, loose = Var(F64), Var(F64)
    body = Jaxpr([v], [], [loose])
    eqn = Eqn(closed_call_p, [v], [Var(F64)], ClosedCallParams(body))
    with pytest.raises(TypecheckError) as e:
        typecheck(Jaxpr([v], [eqn], eqn.outvars))
    assert "is used before it is bound" in str(e.value)


def test_transposition_keeps_residuals_as_operands() -> None:
    """A call of two values and a linear operand, of which one value is read by nothing linear."""

    def fun(a: Any, b: Any, t: Any) -> Any:
        scale = ew.exp(a) * 2.0
        return t * scale, t * b

    jaxpr = make_jaxpr(closed_call(fun))(X, TABLE, X)
    linear = (False, False, True)
    # jaxpr_t : [a, b, ct, ct] -> [t_bar]
    jaxpr_t, nonzero = transpose_jaxpr(jaxpr, linear, (True, True))
    typecheck(jaxpr_t)
    assert nonzero == linear
    assert len(jaxpr_t.invars) == 4
    (got,) = run_jaxpr(jaxpr_t, [X, TABLE, X, 3 * X])
    assert_close(got, X * np.exp(X) * 2 + 3 * X * TABLE)
    only, _ = transpose_jaxpr(jaxpr, linear, (False, True))
    (got,) = run_jaxpr(only, [X, TABLE, X])
    assert_close(got, X * TABLE)


def test_a_product_of_two_linear_operands_is_refused() -> None:
    jaxpr = make_jaxpr(closed_call(lambda a, b: a * b))(X, X)
    with pytest.raises(RuleError) as e:
        transpose_jaxpr(jaxpr, (True, True), (True,))
    assert "`mul` has no transpose in two operands at once" in str(e.value)


# lowering


def functions(fun: Function, *args: Any) -> int:
    text = jit(fun).lower(*args).as_text()
    return text.count("func.func private")


def test_equal_bodies_are_lowered_once() -> None:
    call = closed_call(plain)
    assert functions(lambda x: call(call(call(x))), X) == 1
    assert functions(lambda x: jvp(lambda y: call(call(y)), (x,), (x,)), X) == 1
    # Values with what is kept of them, what is kept alone, and the transpose, which serves both.
    assert functions(lambda x: grad(lambda y: call(call(y)).sum())(x), X) == 3
    assert functions(lambda x: (call(x), vmap(call)(np.stack([X, X]))), X) == 2
    assert functions(lambda x: call_jaxpr(BODY, call_jaxpr(BODY, [x])), X) == 1
    assert functions(lambda x: closed_call(plain, inline=True)(x), X) == 0
    assert functions(lambda x: [closed_call(plain, name=n)(x) for n in "ab"], X) == 2


def test_bodies_that_differ_in_constants_share_a_function_and_not_the_constants() -> None:
    def fun(x: Any) -> Any:
        return [closed_call(lambda y, t=t: y * t, name="scale")(x) for t in (TABLE, X, TABLE)]

    assert functions(fun, X) == 1
    assert_all_close(jit(fun)(X), [X * TABLE, X * X, X * TABLE])


def test_bodies_that_differ_in_a_number_are_lowered_apart() -> None:
    def fun(x: Any) -> Any:
        return [closed_call(lambda y, n=n: y * n, name="scale")(x) for n in (2.0, 3.0, 2.0)]

    assert functions(fun, X) == 2
    assert_all_close(jit(fun)(X), [2 * X, 3 * X, 2 * X])


def test_the_primitive_is_bound_as_it_is() -> None:
    """`bind` by itself forwards nothing: what a rule gives is what it says."""
    jaxpr = make_jaxpr(lambda x: (x, x))(X)
    found = make_jaxpr(lambda x: bind(closed_call_p, x, params=ClosedCallParams(jaxpr)))(X)
    assert names(found) == ["closed_call"]
    assert_all_close(run_jaxpr(found, [X]), [X, X])

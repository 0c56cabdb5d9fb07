"""`check`: an error with the message, the values and the line, when the call returns; later; or as a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import (
    ConcretizationError,
    closed_call,
    custom_jvp,
    ds,
    grad,
    jacrev,
    jit,
    jvp,
    make_jaxpr,
    value_and_grad,
    vmap,
)
from fiveloop.core.extend import select, typecheck
from fiveloop.state import (
    CheckError,
    ErrorValue,
    accumulate,
    all_checks,
    check,
    checked,
    checkify,
    deferred_checks,
    div_checks,
    float_checks,
    freeze,
    index_checks,
    nan_checks,
    new_ref,
    swap,
    user_checks,
)
from fiveloop.testing.core.misuse import raised


def root(x: Any) -> Any:
    check(x >= 0, "no root of {}", x)
    return x**0.5


ROOT_AT = f"{__file__}:{root.__code__.co_firstlineno + 1} (root)"
"""Where the check stands in `root`."""

WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eagerly": lambda f: f,
    "jit": jit,
    "jit in jit": lambda f: jit(jit(f)),
    "closed call": closed_call,
    "grad": grad,
    "jit of grad": lambda f: jit(grad(f)),
    "grad of jit": lambda f: grad(jit(f)),
    "jvp": lambda f: lambda x: jvp(f, (x,), (1.0,)),
    "second order": lambda f: jit(grad(grad(f))),
    "checked": checked,
}


@pytest.mark.parametrize("way", WAYS)
def test_it_raises_when_the_call_returns(way: str) -> None:
    f = WAYS[way](root)
    f(4.0)
    with pytest.raises(CheckError) as error:
        f(-4.0)
    assert str(error.value) == f"no root of -4.0\n  at {ROOT_AT}"
    f(4.0)


@pytest.mark.parametrize("wrap", [lambda f: f, jit])
def test_a_specification_is_applied_to_each_element(wrap: Callable[..., Any]) -> None:
    def f(x: Any) -> None:
        check((x > 0).all(), "{:.2f} adds up to {total:6.1f}", x, total=x.sum())

    with pytest.raises(CheckError) as error:
        wrap(f)(np.array([1.0, -2.0]))
    assert str(error.value).startswith("[1.00 -2.00] adds up to   -1.0\n")


def test_lanes() -> None:
    xs = np.array([4.0, 1.0, -2.0, -3.0])
    for f in (
        vmap(root),
        jit(vmap(root)),
        vmap(jit(root)),
        jit(vmap(grad(root))),
        jacrev(vmap(root)),
    ):
        np.testing.assert_array_equal(np.asarray(f(np.abs(xs))).shape[0], 4)
        with pytest.raises(CheckError) as error:
            f(xs)
        assert str(error.value) == f"no root of -2.0 (in lane 2)\n  at {ROOT_AT}"
    with pytest.raises(CheckError, match=r"no root of -3.0 \(in lane \(1, 1\)\)"):
        jit(vmap(vmap(root)))(np.array([[4.0, 1.0], [2.0, -3.0]]))
    with pytest.raises(CheckError, match=r"n is 3\n"):
        vmap(lambda x: check(False, "n is {}", 3))(xs)


def test_the_first_that_fails_is_told() -> None:
    @jit
    def f(x: Any, y: Any) -> Any:
        check(x > 0, "x is {}", x)
        check(y > 0, "y is {}", y)
        check(x > 0, "again, x is {}", x)
        return x

    with pytest.raises(CheckError, match=r"^x is -1"):
        f(-1, -1)
    with pytest.raises(CheckError, match=r"^y is -2"):
        f(1, -2)
    assert int(f(1, 1)) == 1


def test_values_of_messages() -> None:
    big, tiny = np.uint64(2**64 - 1), np.float64(1 / 3)
    values = [np.int8(-3), big, tiny, np.complex64(1 + 2j), np.bool_(True), ml_dtypes.bfloat16(0.5)]

    def f(xs: Any, a: Any) -> Any:
        check(False, "{} {} {} {} {} {} and {a} or {a[1]:.3f}", *xs, a=a)
        return xs[0]

    want = f"-3 {big} {tiny} (1+2j) True 0.5 and [0.25 0.5 ] or 0.500\n"
    for run in (f, jit(f)):
        with pytest.raises(CheckError) as error:
            run(values, np.array([0.25, 0.5]))
        assert str(error.value).startswith(want)


def test_what_ran_before_is_done() -> None:
    ref = new_ref(np.zeros(2))

    @jit
    def f(x: Any) -> Any:
        ref[0] = x
        check(x > 0, "negative")
        ref[1] = x
        return x

    with pytest.raises(CheckError, match=r"negative"):
        f(-1.0)
    np.testing.assert_array_equal(np.asarray(ref[...]), [-1.0, -1.0])


def test_it_is_in_the_type_and_prints() -> None:
    jaxpr = make_jaxpr(root)(1.0)
    typecheck(jaxpr)
    assert str(jaxpr) == PRINTED


PRINTED = """\
{ lambda a:f32*[] ; Check<1> ; let
    b:bool[] = greater_equal a 0.0*
    check 'no root of {}' b a
    c:f32*[] = pow a 0.5*
  in (c,) }"""


def test_in_a_custom_rule() -> None:
    @custom_jvp
    def f(x: Any) -> Any:
        return root(x)

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        check(primals[0] != 1.0, "the rule refuses {}", *primals)
        return root(primals[0]), tangents[0]

    with pytest.raises(CheckError, match=r"no root of -1"):
        jit(f)(-1.0)
    with pytest.raises(CheckError, match=r"the rule refuses 1"):
        jit(grad(f))(1.0)
    error, slope = jit(grad_of_checkified(f))(1.0)
    assert (error.get() or "").startswith("the rule refuses 1.0\n")
    assert float(slope) == 1.0


def grad_of_checkified(f: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative of a function with its errors as values."""

    def flipped(x: Any) -> Any:
        error, out = checkify(f)(x)
        return out, error

    def call(x: Any) -> Any:
        (_, error), slope = value_and_grad(flipped, has_aux=True)(x)
        return error, slope

    return call


# later


def test_deferred() -> None:
    f = jit(root)
    with deferred_checks() as checks:
        f(4.0)
        checks.raise_if_any()
        f(-1.0)
        root(-2.0)
        out = f(9.0)
        with pytest.raises(CheckError, match=r"no root of -1\.0"):
            checks.raise_if_any()
        checks.raise_if_any()
    assert float(out) == 3.0
    assert str(raised(lambda: deferring(f, [-5.0, -6.0]))).startswith("no root of -5.0")
    assert type(raised(lambda: deferring(f, [-7.0, None]))) is TypeError
    assert str(raised(lambda: f(-8.0))).startswith("no root of -8.0")


def test_another_error_tells_of_a_check_that_had_failed() -> None:
    def use(leaving: BaseException | None, x: float) -> None:
        with deferred_checks():
            jit(root)(x)
            if leaving is not None:
                raise leaving

    cause = KeyError("the cause")
    plain, chained = LookupError("no entry"), LookupError("no entry")
    chained.__context__ = cause
    for error in (plain, chained):
        assert raised(partial(use, error, -4.0)) is error
        assert error.__notes__ == [
            f"before this, a check had failed: no root of -4.0\n  at {ROOT_AT}"
        ]
    assert isinstance(plain.__context__, CheckError)
    assert chained.__context__ is cause and isinstance(cause.__context__, CheckError)
    fine, stop = LookupError("no entry"), KeyboardInterrupt()
    assert raised(partial(use, fine, 4.0)) is fine and not hasattr(fine, "__notes__")
    with pytest.raises(KeyboardInterrupt) as left:
        use(stop, -4.0)
    assert left.value is stop and not hasattr(stop, "__notes__")
    assert str(raised(partial(use, None, -4.0))).startswith("no root of -4.0")


def deferring(f: Callable[..., Any], xs: Sequence[Any]) -> None:
    """Call a function on one after the other, and ask at the end whether something has failed."""
    with deferred_checks():
        for x in xs:
            f(x)


def test_deferred_many() -> None:
    xs = [-3.0 if k == 700 else 1.0 for k in range(1500)]
    assert str(raised(lambda: deferring(jit(root), xs))).startswith("no root of -3.0")


# as values


def test_checkify() -> None:
    f = checkify(root)
    for run in (f, jit(f), checkify(jit(root)), jit(checkify(closed_call(root)))):
        error, out = run(4.0)
        assert (error.get(), bool(error), float(out)) == (None, False, 2.0)
        error.throw()
        error, out = run(-4.0)
        assert (error.get(), bool(error)) == (f"no root of -4.0\n  at {ROOT_AT}", True)
        assert np.isnan(float(out))
        with pytest.raises(CheckError, match=r"no root of -4\.0"):
            error.throw()
    assert repr(f(4.0)[0]) == "ErrorValue(None)"
    error, slope = jit(grad_of_checkified(root))(-4.0)
    assert (error.get() or "").startswith("no root of -4.0")
    error, slope = checkify(grad(root))(4.0)
    assert (bool(error), float(slope)) == (False, 0.25)


def test_an_error_of_each_lane() -> None:
    xs = np.array([4.0, -1.0, -2.0])
    error, _ = jit(vmap(checkify(root)))(xs)
    assert error.get() == f"no root of -1.0 (in lane 1)\n  at {ROOT_AT}"
    assert [error[k].get() for k in range(3)] == [
        None,
        f"no root of -1.0\n  at {ROOT_AT}",
        f"no root of -2.0\n  at {ROOT_AT}",
    ]
    error, _ = vmap(vmap(checkify(root)))(xs[:, None])
    assert error.get() == f"no root of -1.0 (in lane (1, 0))\n  at {ROOT_AT}"
    error, _ = jit(checkify(vmap(root)))(xs)
    assert error.get() == f"no root of -1.0 (in lane 1)\n  at {ROOT_AT}"


def test_no_indices_and_no_lanes_fail_nothing() -> None:
    x, none = fiveloop_array(np.arange(3.0)), np.zeros((0,), int)
    run = checkify(lambda i: x[i], errors=index_checks)
    lanes = vmap(checkify(lambda i: root(x[i]), errors=index_checks | user_checks))
    for fun in (run, jit(run), lanes, jit(lanes)):
        error, out = fun(none)
        assert (error.get(), out.shape) == (None, (0,))
    assert checked(vmap(vmap(root)))(np.zeros((3, 0))).shape == (3, 0)


def test_indices() -> None:
    run = checkify(lambda x, i: x[i], errors=index_checks)
    x = np.arange(12.0).reshape(3, 4)
    for i in (0, 2, -3, np.array([0, -1]), (1, 3)):
        assert run(x, i)[0].get() is None
    for i, message in {
        3: "index 3 is out of bounds for an axis of size 3",
        -4: "index -4 is out of bounds for an axis of size 3",
    }.items():
        assert (run(x, i)[0].get() or "").startswith(f"{message}\n  at {__file__}")
    error, _ = jit(run)(x, np.array([0, 1, 5, 9]))
    assert (error.get() or "").startswith("index 5 is out of bounds for an axis of size 3\n")
    error, _ = vmap(run, in_axes=(None, 0))(x, np.array([0, 5, -9]))
    assert [bool(error[k]) for k in range(3)] == [False, True, True]
    put = checkify(lambda x, i: x.at[0, i].set(1.0), errors=index_checks)
    assert (put(fiveloop_array(x), 4)[0].get() or "").startswith("index 4 is out of bounds")


def fiveloop_array(x: Any) -> Any:
    """An array of the library's own."""
    return jit(lambda x: x)(x)


def test_indices_of_refs() -> None:
    def touch(i: Any, how: Callable[[Any, Any], None]) -> Any:
        ref = new_ref(np.zeros((3, 4)))
        how(ref, i)
        return freeze(ref)

    def write(ref: Any, i: Any) -> None:
        ref[1, i] = 1.0

    def accumulate(ref: Any, i: Any) -> None:
        ref[i] += 1.0

    def read_block(ref: Any, i: Any) -> None:
        ref[0, 0] = ref[0, ds(i, 3)].sum()

    for how, good, bad, message in (
        (write, -4, 4, "index 4 is out of bounds for axis 1 of size 4"),
        (accumulate, 2, 3, "index 3 is out of bounds for axis 0 of size 3"),
        (
            accumulate,
            np.array([0, 1]),
            np.array([0, -7]),
            "index -7 is out of bounds for axis 0 of size 3",
        ),
        (read_block, 1, 2, "a block of 3 at index 2 is out of bounds for axis 1 of size 4"),
    ):
        run = checked(lambda i, how=how: touch(i, how), errors=index_checks)
        run(good)
        for f in (run, jit(run)):
            with pytest.raises(CheckError) as error:
                f(bad)
            first, line = str(error.value).split("\n")
            assert first == message
            assert line.startswith(f"  at {__file__}") and line.endswith(f"({how.__name__})")


def test_divisions_and_nans() -> None:
    f = checkify(lambda x, y: x / y, errors=div_checks)
    assert f(1.0, 2.0)[0].get() is None
    assert (f(1.0, 0.0)[0].get() or "").startswith(f"`div` divides by zero\n  at {__file__}")
    assert (checkify(lambda n: n % 0, errors=div_checks)(3)[0].get() or "").startswith("`mod` div")
    g = checkify(lambda x, y: (x - y) * 2.0, errors=nan_checks)
    assert g(np.inf, 1.0)[0].get() is None
    assert (g(np.inf, np.inf)[0].get() or "").startswith("`sub` made a nan\n")
    assert g(np.nan, 1.0)[0].get() is None  # it was given
    assert (g(np.array([np.nan, np.inf]), np.inf)[0].get() or "").startswith("`sub` made a nan\n")
    error, _ = jit(checkify(lambda x: (x / x).sum(), errors=float_checks))(np.array([1.0, 0.0]))
    assert (error.get() or "").startswith("`div` divides by zero")
    error, _ = jit(checkify(grad(lambda x: x**0.5 * 0.0), errors=nan_checks))(0.0)
    assert "made a nan" in (error.get() or "")


DIVISIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "/": (lambda x: 1.0 / x, "div"),
    "//": (lambda x: 3.0 // x, "div"),
    "%": (lambda x: 3.0 % x, "rem"),
    "divmod": (lambda x: divmod(3.0, x)[1], "rem"),
    "** -1": (lambda x: x**-1, "integer_pow"),
    "** -2.0": (lambda x: x**-2.0, "pow"),
    "** traced": (lambda x: x ** (x - 1.0), "pow"),
    "complex /": (lambda x: 1.0 / (x + 0j), "div"),
    "complex ** -1": (lambda x: (x + 0j) ** -1, "integer_pow"),
    "complex ** traced": (lambda x: (x + 0j) ** (x - 1.0 + 0j), "pow"),
    "integer //": (lambda x: 3 // x.astype("int32"), "floor_div"),
    "integer %": (lambda x: 3 % x.astype("int32"), "mod"),
    "a derivative": (grad(lambda x: x**0.5), "pow"),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_what_divides(name: str) -> None:
    f, what = DIVISIONS[name]
    run = jit(checkify(f, errors=div_checks))
    error, _ = run(np.float32(0.0))
    assert (error.get() or "").startswith(f"`{what}` divides by zero\n  at {__file__}")
    assert run(np.float32(2.0))[0].get() is None


def test_what_does_not_divide() -> None:
    def f(x: Any) -> Any:
        return x**0.0 + x**2 + x**3.0 + select(x == 0, x, 1.0) + grad(lambda x: x**2.0)(x)

    assert jit(checkify(f, errors=div_checks))(0.0)[0].get() is None


def test_what_is_not_asked_for_stays() -> None:
    f = checkify(lambda x: root(x) / 0.0, errors=div_checks)
    error, _ = f(4.0)
    assert (error.get() or "").startswith("`div` divides by zero")
    with pytest.raises(CheckError, match=r"no root of -4\.0"):
        f(-4.0)
    with pytest.raises(CheckError, match=r"no root of -4\.0"):
        jit(f)(-4.0)
    error, _ = checkify(lambda x: root(x) / 0.0, errors=user_checks)(4.0)
    assert error.get() is None
    error, _ = checkify(lambda x: root(x) / 0.0, errors=all_checks)(-4.0)
    assert (error.get() or "").startswith("no root of -4.0")


# misuse


MISUSE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "pred is not a bool": (
        lambda: check(1.0, "m"),
        TypeError,
        "check: pred must be one bool, got f32*[]; compare, and reduce with `.all()`",
    ),
    "pred is an array": (
        lambda: check(np.array([True, False]), "m"),
        TypeError,
        "check: pred must be one bool, got bool[2]; compare, and reduce with `.all()`",
    ),
    "message is no string": (
        lambda: check(True, 3),  # type: ignore[arg-type]
        TypeError,
        "check: message must be a string, got 3",
    ),
    "a value is missing": (
        lambda: check(True, "{} {}", 1),
        ValueError,
        "check: the message '{} {}' cannot be formatted with values of types [i32*[]] (IndexError: list index out of "
        "range); give one for each pair of braces",
    ),
    "a name is missing": (
        lambda: check(True, "{x}", y=1),
        ValueError,
        "check: the message '{x}' cannot be formatted with values of types [i32*[]] (KeyError: 'x'); give one for each "
        "pair of braces",
    ),
    "unknown errors": (
        lambda: checkify(root, errors=frozenset(["oob"])),
        TypeError,
        "checkify: errors must be a set of kinds of checks, got frozenset({'oob'}); join `user_checks`, "
        "`index_checks`, `nan_checks` and `div_checks` with `|`, or use `all_checks`",
    ),
    "an error asked for while traced": (
        lambda: jit(lambda x: bool(checkify(root)(x)[0]))(1.0),
        ConcretizationError,
        "",
    ),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse(case: str) -> None:
    use, kind, message = MISUSE[case]
    with pytest.raises(kind) as error:
        use()
    first, _, line = str(error.value).partition("\n  at ")
    assert first.startswith(message)
    assert line.startswith(__file__)


def test_an_error_value_is_a_container() -> None:
    error, _ = checkify(root)(-1.0)
    again = jit(lambda e: e)(error)
    assert isinstance(again, ErrorValue)
    assert again.get() == error.get()
    assert isinstance(raised(again.throw), CheckError)


def test_a_nan_that_a_ref_held_was_not_made_by_reading_it() -> None:
    xs = np.asarray([1.0, np.nan, 3.0])

    def total(xs: Any) -> Any:
        ref = new_ref(xs)
        old = swap(ref, 1, 2.0)
        return ref[0] + freeze(ref)[1] + 0.0 * select(old != old, 0.0, old)

    assert float(jit(checked(total, errors=nan_checks))(xs)) == 3.0


@pytest.mark.parametrize(("monoid", "x", "share"), [("add", np.inf, -np.inf), ("mul", 0.0, np.inf)])
def test_a_nan_that_an_accumulation_makes(monoid: str, x: float, share: float) -> None:
    def run(x: Any, share: Any) -> Any:
        ref = new_ref(x)
        accumulate(ref, ..., share, monoid)
        return freeze(ref)

    with pytest.raises(CheckError, match="made a nan"):
        jit(checked(run, errors=nan_checks))(x, share)

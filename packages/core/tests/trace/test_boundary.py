"""Where the user's line is added to errors: at boundaries, and where lines change below them."""

from __future__ import annotations

import pytest

from fiveloop.core import custom_jvp, grad, jvp
from fiveloop.core.trace.boundary import boundary
from fiveloop.testing.core.misuse import assert_misuse, raised


def test_an_error_of_the_library_gets_the_line_of_the_call() -> None:
    assert_misuse(
        lambda: jvp(abs, 1.0, (1.0,)),  # type: ignore[call-overload]  # misuse
        TypeError,
        "jvp: primals must be a tuple or a list with an entry for each argument, got float",
    )


def test_an_error_of_the_users_stays_as_it_is() -> None:
    def refuse(x: object) -> object:
        raise ValueError(f"not {x}")

    error = raised(lambda: boundary(refuse)(3))
    assert (type(error), str(error)) == (ValueError, "not 3")


def test_an_error_below_a_rule_names_the_line_in_the_rule() -> None:
    @custom_jvp
    def f(x: float) -> float:
        return x

    @f.defjvp
    def rule(primals: tuple[float], tangents: tuple[float]) -> tuple[float, float]:
        return jvp(abs, 1.0, (1.0,))  # type: ignore[call-overload, no-any-return]  # misuse

    assert_misuse(
        lambda: grad(f)(3.0),
        TypeError,
        "jvp: primals must be a tuple or a list with an entry for each argument, got float",
        within=rule,
    )


@pytest.mark.parametrize("kind", [KeyError, RuntimeError])
def test_errors_that_are_no_misuse_stay_as_they_are(kind: type[Exception]) -> None:
    def fail() -> None:
        raise kind("found nothing")

    assert raised(boundary(fail)).args == ("found nothing",)

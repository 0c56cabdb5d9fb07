"""`debug_print`: what it prints, and the format strings that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, vmap
from fiveloop.state import debug_print, new_ref
from fiveloop.testing.core.misuse import assert_misuse

X = np.float32(0.5)
ROWS = np.arange(4.0, dtype="float32").reshape(2, 2)


def plain(fun: Any) -> Any:
    """The function itself."""
    return fun


PRINTS: list[tuple[Callable[..., None], str]] = [
    (lambda x: debug_print("hello"), "hello"),
    (lambda x: debug_print("{}", x), "0.5"),
    (
        lambda x: debug_print("{x} is {x:.3f}, {x!r}", x=x),
        "0.5 is 0.500, array(0.5, dtype=float32)",
    ),
    (lambda x: debug_print("{1} {0}", x, x * 2), "1.0 0.5"),
    (lambda x: debug_print("{{{}}}", x), "{0.5}"),
    (lambda x: debug_print("{:>6}|{}", "name", x), "  name|0.5"),
    (lambda x: debug_print("{x:+.1f}", x=ROWS + x), "[[+0.5 +1.5]\n [+2.5 +3.5]]"),
    (lambda x: debug_print("{x.shape} {x[0]}", x=ROWS + x), "(2, 2) [0.5 1.5]"),
    (lambda x: debug_print("{p[a]} {p[b]:.1f}", p={"a": 1, "b": x}), "1 0.5"),
    (lambda x: debug_print("{} {}", 1, True), "1 True"),
    (lambda x: debug_print("{:d}", (x * 4).astype("int32")), "2"),
]


@pytest.mark.parametrize("way", [plain, jit])
@pytest.mark.parametrize(("fun", "text"), PRINTS)
def test_prints(way: Any, fun: Any, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    way(fun)(X)
    assert capsys.readouterr().out == text + "\n"


def test_prints_primals_once_and_lanes_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    def fun(x: Any) -> Any:
        debug_print("x = {}", x)
        return x * x

    grad(fun)(X)
    jit(vmap(grad(fun)))(np.array([1.0, 2.0], "float32"))
    assert capsys.readouterr().out == "x = 0.5\nx = 1.0\nx = 2.0\n"


NO_FIT = (
    "debug_print: expected a format string that fits the arguments, got {!r}: {}; write a field `{{}}` or `{{name}}` "
    "for each argument"
)
MISUSES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a field without a value": (
        lambda: debug_print("{x} {y}", x=X),
        ValueError,
        NO_FIT.format("{x} {y}", "nothing is given for the field 'y'"),
    ),
    "too few": (
        lambda: jit(lambda x: debug_print("{} {}", x))(X),
        ValueError,
        NO_FIT.format(
            "{} {}",
            "too few arguments are given (tuple index out of range)",
        ),
    ),
    "left over": (
        lambda: debug_print("x", X, y=X),
        ValueError,
        NO_FIT.format("x", "no field takes the argument 0, y"),
    ),
    "a specification of another type": (
        lambda: jit(lambda x: debug_print("{:d}", x))(X),
        ValueError,
        NO_FIT.format("{:d}", "Unknown format code 'd' for object of type 'float'"),
    ),
    "an open brace": (
        lambda: debug_print("{", X),
        ValueError,
        NO_FIT.format("{", "Single '{' encountered in format string"),
    ),
    "no attribute": (
        lambda: debug_print("{x.name}", x=X),
        ValueError,
        NO_FIT.format("{x.name}", "'numpy.ndarray' object has no attribute 'name'"),
    ),
    "no string": (
        lambda: debug_print(X),  # type: ignore[arg-type]  # on purpose
        TypeError,
        "debug_print: expected a format string first, got np.float32(0.5) of type float32; write "
        '`debug_print("{}", x)`',
    ),
    "formatted already": (
        lambda: jit(lambda x: debug_print(f"x = {x}"))(X),
        ValueError,
        "debug_print: expected a format string, got 'x = Traced<f32[]>', into which a traced value has been formatted "
        'already; leave out the f in front, and write `debug_print("{}", x)`',
    ),
    "a Ref": (
        lambda: debug_print("{}", new_ref(X)),
        TypeError,
        "debug_print: expected arrays, got a Ref of type Ref{f32[]} as argument[0]; read it: `ref[...]`",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(name: str) -> None:
    assert_misuse(*MISUSES[name])

"""Bad input: an error of the right type, whose message is known word for word and ends with the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any


def assert_misuse(
    call: Callable[[], object],
    kind: type[Exception],
    message: str,
    *,
    within: Callable[..., Any] | None = None,
) -> None:
    """A call raises an error of just this type and message; the place it names is a line of `call`, or `within`."""
    error = raised(call)
    given, _, place = str(error).partition("\n  at ")
    assert type(error) is kind, f"expected {kind.__name__}, got {type(error).__name__}: {error}"
    assert given == message, f"expected the message\n{message}\ngot\n{given}"
    assert_within(within or call, place)


def raised(call: Callable[[], object]) -> Exception:
    """The error that a call raises."""
    try:
        result = call()
    except Exception as error:
        return error
    raise AssertionError(f"expected an error, got the result {result!r}")


def assert_within(fun: Callable[..., Any], place: str) -> None:
    """A place as errors name it, `file:line (function)`, lies within a function."""
    code = fun.__code__
    lines = set(_lines(code))
    file, _, rest = place.rpartition(":")
    assert file == code.co_filename, f"expected a line of {code.co_filename}, got {place!r}"
    assert int(rest.split(" ")[0]) in lines, (
        f"expected one of the lines {sorted(lines)}, got {place!r}"
    )


def place_in(fun: Callable[..., Any], line: int = 1) -> str:
    """How messages name a line of a function, counted from the one that its `def` is on."""
    code = fun.__code__
    return f"{code.co_filename}:{code.co_firstlineno + line} ({code.co_name})"


def _lines(code: CodeType) -> Iterator[int]:
    """The lines of a function, and of those defined within it."""
    yield from (line for *_, line in code.co_lines() if line is not None)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _lines(const)

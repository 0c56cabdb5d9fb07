"""Golden tests: a printed jaxpr compared with the text that a test holds, for reading as much as for checking."""

from __future__ import annotations

from difflib import unified_diff
from textwrap import dedent

from fiveloop.core.ir.jaxpr import Jaxpr
from fiveloop.core.ir.pretty import format_jaxpr


def assert_prints(jaxpr: Jaxpr, expected: str) -> None:
    """The jaxpr prints as the text, whose indentation and surrounding blank lines do not count."""
    got = format_jaxpr(jaxpr).splitlines()
    want = dedent(expected).strip().splitlines()
    if got != want:
        diff = "\n".join(unified_diff(want, got, "expected", "printed", lineterm=""))
        raise AssertionError(
            f"the jaxpr prints otherwise:\n{diff}\n\nall of it:\n" + "\n".join(got)
        )

"""How Sphinx builds the site; the guides are Markdown, and `nox -s docs` runs their code first."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

project = "fiveloop"
author = "the fiveloop authors"
release = "0.1.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = "fiveloop"

CODE = re.compile(r"``?([^`]+)``?")


def plain_line(line: str) -> str:
    """A line of prose as reStructuredText: code in backquotes is literal, nothing else is markup."""
    parts = CODE.split(line)
    prose = [re.sub(r"([*_|\\])", r"\\\1", part) for part in parts[::2]]
    code = [
        rf"``{part}``\ " for part in parts[1::2]
    ]  # the blank, which is not shown, ends the literal
    return "".join(p for pair in zip(prose, [*code, ""], strict=True) for p in pair)


def kinds(lines: Iterable[str]) -> Iterator[str]:
    """What each line of a docstring is part of: an example, something indented, or prose."""
    example = False  # it goes to the next blank line, with outputs of which lines may be indented
    for line in lines:
        example = bool(line.strip()) and (example or line.startswith(">>> "))
        yield "example" if example else "indented" if line.startswith("  ") else "prose"


def plain_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are prose with code in backquotes; examples, and what is indented, are shown as they stand."""
    shown: list[str] = []
    for kind, run in groupby(zip(kinds(lines), lines, strict=True), key=lambda pair: pair[0]):
        block = [line for _, line in run]
        if kind == "example":
            shown += ["", *block, ""]
        elif kind == "indented":
            shown += ["", "::", "", *block, ""]
        else:
            shown += map(plain_line, block)
    lines[:] = shown


def skip_member(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """NumPy's own types are NumPy's to describe."""
    return True if str(getattr(obj, "__module__", "")).startswith(("numpy", "ml_dtypes")) else None


def setup(app: Any) -> None:
    """Called by Sphinx before it reads the sources."""
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", plain_docstring)

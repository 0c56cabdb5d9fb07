"""Runs the Python code of a document, and compares what it prints with what the document shows.

    python tests/docs_code.py docs/loops.md

It imports nothing but what the document does, so that any environment can run it.
"""

from __future__ import annotations

import io
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n`]*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the line it opens on, its text, and whether prose stands before it."""

    language: str
    line: int
    text: str
    follows: bool


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, in order."""
    lines = iter(enumerate(text.splitlines(), start=1))
    follows = False
    for number, line in lines:
        if not (opened := FENCE.match(line)):
            follows = follows and not line.strip()
            continue
        indent, body = len(opened["indent"]), []
        for _, inner in lines:
            if inner.strip() == "```":
                break
            body.append(inner[indent:])
        else:
            raise AssertionError(f"the block that opens on line {number} does not close")
        yield Block(opened["language"], number, "\n".join(body), follows)
        follows = True


def examples_of(text: str) -> Iterator[tuple[Block, Block | None]]:
    """Each Python block with the `text` block that stands right below it, its output."""
    blocks = list(blocks_of(text))
    for index, block in enumerate(blocks):
        if block.language == "python":
            below = blocks[index + 1 : index + 2]
            shown = [b for b in below if b.language == "text" and b.follows]
            yield block, shown[0] if shown else None


def run_block(block: Block, where: str, namespace: dict[str, Any], may_fail: bool) -> str:
    """Run a block and give what it printed; an error counts as output where output is shown."""
    # Blank lines above the code make the line numbers of errors those of the document.
    code = compile("\n" * block.line + block.text, where, "exec")
    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            exec(code, namespace)
        except Exception as error:
            if not may_fail:
                raise
            print("".join(traceback.format_exception_only(error)), end="")
    return printed.getvalue()


def tidy(text: str) -> str:
    """The text without the blanks that a Markdown block does not keep."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def run_document(text: str, where: str) -> int:
    """Run the Python blocks of a document in one fresh namespace; give how many there were."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for block, output in examples_of(text):
        printed = run_block(block, where, namespace, may_fail=output is not None)
        if output is not None:
            assert tidy(printed) == tidy(output.text), f"{where}:{block.line}: another output"
        count += 1
    return count


if __name__ == "__main__":
    document = Path(sys.argv[1])
    text = document.read_text(encoding="utf-8")
    count = run_document(text, str(document))
    assert count == text.count("```python"), (
        f"{document}: {count} blocks of Python are run, not all"
    )

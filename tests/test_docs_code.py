"""The code of the README and the guides prints what they show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests import docs_code
from tests.docs_code import run_document

ROOT = Path(__file__).parent.parent
READMES = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]
DOCUMENTS = [*READMES, *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_code_of_a_document_prints_what_it_shows(path: Path) -> None:
    # A process of its own: a document may define primitives, which are there for good.
    command = [sys.executable, docs_code.__file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SAMPLE = """
```python
x = 2
```
Then

```python
print(x + 1)
```

```text
3
```
```python
x / 0
```
```text
ZeroDivisionError: division by zero
```
"""


def test_blocks_share_a_namespace_and_outputs_are_compared() -> None:
    assert run_document(SAMPLE, "sample") == 3


def test_another_output_is_noticed() -> None:
    with pytest.raises(AssertionError, match="sample:7: another output"):
        run_document(SAMPLE.replace("\n3\n", "\n4\n"), "sample")


def test_an_error_that_is_not_shown_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        run_document(SAMPLE.rsplit("```text", 1)[0], "sample")


def test_a_block_that_is_not_run_is_noticed(tmp_path: Path) -> None:
    document = tmp_path / "sample.md"
    document.write_text("> ```python\n> x = 2\n> ```\n", encoding="utf-8")
    command = [sys.executable, docs_code.__file__, str(document)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "0 blocks of Python are run, not all" in done.stderr

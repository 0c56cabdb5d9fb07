"""`enable_compilation_cache`: what it takes, what it refuses, and several processes in one folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    compilation_counts,
    disable_compilation_cache,
    enable_compilation_cache,
    forget_traces,
    jit,
)
from fiveloop.core.backend import compilation_cache
from fiveloop.core.primitives.special import sin

X = np.arange(3, dtype=np.float32)
PROGRAM = """
import sys
import numpy as np
from fiveloop.core import compilation_counts, enable_compilation_cache, grad, jit
from fiveloop.core.primitives.special import sin
enable_compilation_cache(sys.argv[1], max_bytes=int(sys.argv[2]))
big = np.arange(100.0)
outs = [sin(2.0), jit(lambda x: x + big)(1.0)[3], jit(lambda x: x * 2, donate_argnums=0)(jit(abs)(np.ones(2)))[0]]
outs += [grad(sin)(k * 1.0) for k in range(3)]
counts = compilation_counts()
print(" ".join(f"{float(x):.6f}" for x in outs))
print(counts.compiled, counts.loaded, counts.damaged)
"""


@pytest.fixture(autouse=True)
def no_cache_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_cache, "_active", [None])


def started(folder: Path, max_bytes: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(folder), str(max_bytes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def printed(process: subprocess.Popen[str]) -> tuple[str, list[int]]:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    values, counts = out.splitlines()
    return values, [int(number) for number in counts.split()]


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    values, (compiled, loaded, _) = printed(started(tmp_path, 10**7))
    assert values.startswith("0.909297 4.000000 2.000000")
    assert (compiled > 4, loaded) == (True, 0)
    assert printed(started(tmp_path, 10**7)) == (values, [0, compiled, 0])


def test_processes_share_a_small_folder(tmp_path: Path) -> None:
    outs = [printed(p) for p in [started(tmp_path, 20_000) for _ in range(3)]]
    assert len({values for values, _ in outs}) == 1
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 20_000


def test_eager_operations_and_jitted_functions_are_loaded(tmp_path: Path) -> None:
    forget_traces()  # `sin` of this shape may have been compiled in this process, without the cache
    enable_compilation_cache(tmp_path)
    double: Any = jit(lambda x: x * 2)
    first = [sin(X), double(X)]
    before = compilation_counts()
    forget_traces()
    double.clear_cache()
    again = [sin(X), jit(lambda x: x * 2)(X)]
    after = compilation_counts()
    assert (after.compiled - before.compiled, after.loaded - before.loaded) == (0, 2)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_is_disabled(tmp_path: Path) -> None:
    enable_compilation_cache(tmp_path)
    disable_compilation_cache()
    jit(lambda x: x * 3)(X)
    assert not [*tmp_path.iterdir()]


def test_a_folder_is_made_and_a_home_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    enable_compilation_cache("~/a/b", max_bytes=None)
    jit(lambda x: x * 3)(X)
    assert len([*(tmp_path / "a" / "b").iterdir()]) == 1


@pytest.mark.parametrize("wrong", [3, None, b"folder"])
def test_a_path_is_text(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"enable_compilation_cache: expected `path` to be the path"
    ):
        enable_compilation_cache(wrong)


@pytest.mark.parametrize("wrong", [True, 1e9, "1GB"])
def test_a_size_is_an_int(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"expected `max_bytes` to be an int, or None for no limit"):
        enable_compilation_cache(tmp_path, max_bytes=wrong)


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_size_is_positive(tmp_path: Path, wrong: int) -> None:
    with pytest.raises(ValueError, match=f"`max_bytes`: expected a positive .*, got {wrong}"):
        enable_compilation_cache(tmp_path, max_bytes=wrong)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"`path`: expected a folder .* choose another"):
        enable_compilation_cache(tmp_path / "file")
    with pytest.raises(NotADirectoryError, match=r"got '.*file/below'"):
        enable_compilation_cache(tmp_path / "file" / "below")


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(compilation_cache.CompilationCache, "_write", refuse)
    with pytest.raises(PermissionError, match=r"in which files can be written, got .*Permission"):
        enable_compilation_cache(tmp_path)
    assert os.environ.get("FIVELOOP_CACHE_DIR") is None
    assert compilation_cache.active_cache() is None

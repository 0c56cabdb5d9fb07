"""Programs on disk: found again, never another's, bounded in size, and written again when damaged."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiveloop.core.backend import client, compilation_cache, hlo
from fiveloop.core.backend.client import Aval, CompileChoices, Executable
from fiveloop.core.backend.compilation_cache import (
    CompilationCache,
    CompilationCounts,
    compilation_counts,
    count,
)
from fiveloop.core.backend.native import compile_options

F4 = np.dtype("f4")


@pytest.fixture(autouse=True)
def zero_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_cache, "_counts", [CompilationCounts()])
    monkeypatch.setattr(compilation_cache, "_active", [None])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is in use as the cache."""
    compilation_cache.use(CompilationCache(str(tmp_path), None))
    return tmp_path


def adding(amount: float, donates: bool = False) -> Executable:
    b = hlo.Builder("adding")

    def body(args: list[hlo.IRValue]) -> list[hlo.IRValue]:
        return [hlo.add(b, args[0], hlo.constant(b, np.float32(amount), (3,), F4))]

    attrs = [{"tf.aliasing_output": "0 : i32"} if donates else None]
    b.function("main", [((3,), F4)], public=True, param_attrs=attrs, body=body)
    return client.compile_text(b.text(), [Aval((3,), F4)])


def ones() -> client.Buffer:
    return client.put(np.ones(3, F4), Aval((3,), F4))


def result(executable: Executable) -> float:
    (out,) = executable.execute([ones()])
    return float(client.to_numpy(out)[0])


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.fiveloop"), key=lambda path: path.stat().st_mtime)


def test_a_program_is_compiled_once_and_loaded_after_that(folder: Path) -> None:
    assert [result(adding(k)) for k in (1, 2, 1)] == [2, 3, 2]
    assert compilation_counts() == CompilationCounts(compiled=2, loaded=1, written=2)
    assert len(entries(folder)) == 2


def test_without_a_cache_every_program_is_compiled(tmp_path: Path) -> None:
    assert [result(adding(k)) for k in (1, 1)] == [2, 2]
    assert compilation_counts() == CompilationCounts(compiled=2)


def test_a_loaded_program_is_as_the_compiled_one(folder: Path) -> None:
    compiled, loaded = adding(1, donates=True), adding(1, donates=True)
    assert compilation_counts().loaded == 1
    assert loaded.memory_analysis() == compiled.memory_analysis()
    assert loaded.memory_analysis().alias == 12
    assert loaded.cost_analysis() == compiled.cost_analysis()
    assert loaded.optimized_text() == compiled.optimized_text()
    given = ones()
    loaded.execute([given])
    assert given.is_deleted()


def test_the_key_depends_on_options_version_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    here = client.default_client()

    def key(text: str = "program", **choices: Any) -> str:
        options = compile_options(CompileChoices(**choices), here.platform, here.device.id)
        return client.cache_key(text, options.SerializeAsString(), here)

    first = key()
    keys = {first, key("other"), key(optimization_level=1)}
    keys.add(key(backend_options=(("xla_cpu_a", "1"),)))
    for name, other in (("version", "0.0"), ("_instruction_sets", lambda: "flags: none")):
        client._machine.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(client, name, other)
            keys.add(key())
        client._machine.cache_clear()
    assert len(keys) == 6
    assert key() == first


def cut_short(folder: Path) -> None:
    path = entries(folder)[0]
    path.write_bytes(path.read_bytes()[:-1])


def empty(folder: Path) -> None:
    entries(folder)[0].write_bytes(b"")


def put_under_anothers_name(folder: Path) -> None:
    one, other = entries(folder)
    one.write_bytes(other.read_bytes())


def replaced_by_what_is_no_program(folder: Path) -> None:
    path = entries(folder)[0]
    path.write_bytes(compilation_cache._header(path.stem, b"no program") + b"no program")


DAMAGE = [cut_short, empty, put_under_anothers_name, replaced_by_what_is_no_program]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_entry_is_reported_and_written_again(
    folder: Path, damage: Callable[[Path], None]
) -> None:
    for k in (1, 2):
        adding(k)
    damage(folder)
    with pytest.warns(
        RuntimeWarning, match=r"compilation cache in .*\.fiveloop is ignored"
    ) as told:
        assert [result(adding(k)) for k in (1, 2)] == [2, 3]
    assert len(told) == 1
    assert compilation_counts() == CompilationCounts(compiled=3, loaded=1, written=3, damaged=1)
    assert [result(adding(k)) for k in (1, 2)] == [2, 3]
    assert compilation_counts().loaded == 3


def test_damage_is_reported_once(folder: Path) -> None:
    for k in (1, 2):
        adding(k)
    for path in entries(folder):
        path.write_bytes(b"junk")
    with pytest.warns(RuntimeWarning, match="reported once") as told:
        assert [result(adding(k)) for k in (1, 2)] == [2, 3]
    assert [warning.filename for warning in told] == [__file__]
    assert compilation_counts().damaged == 2


def test_an_entry_that_cannot_be_read_or_replaced_costs_only_its_program(folder: Path) -> None:
    adding(1)
    (path,) = entries(folder)
    path.unlink()
    path.mkdir()
    with pytest.warns(RuntimeWarning) as told:
        assert result(adding(1)) == 2
    assert ["is ignored" in str(told[0].message), "not be written" in str(told[1].message)] == [
        True
    ] * 2
    assert [p.name for p in folder.iterdir()] == [path.name]


def test_what_was_not_used_for_the_longest_is_deleted(tmp_path: Path) -> None:
    unbounded = CompilationCache(str(tmp_path), None)
    for k in range(4):
        unbounded.add(f"key{k}", bytes(1000))
        os.utime(tmp_path / f"key{k}.fiveloop", (k, k))
    assert unbounded.find("key0") == bytes(1000)
    size = (tmp_path / "key0.fiveloop").stat().st_size
    bounded = CompilationCache(str(tmp_path), 3 * size)
    assert {p.stem for p in entries(tmp_path)} == {"key0", "key2", "key3"}
    bounded.add("key4", bytes(1000))
    assert {p.stem for p in entries(tmp_path)} == {"key0", "key3", "key4"}
    assert compilation_counts().evicted == 2


def test_a_program_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    cache = CompilationCache(str(tmp_path), 1000)
    cache.add("small", bytes(100))
    cache.add("large", bytes(1000))
    assert [p.stem for p in entries(tmp_path)] == ["small"]


def test_files_of_others_stay_and_those_of_dead_processes_go(tmp_path: Path) -> None:
    old = time.time() - 2 * compilation_cache._ABANDONED_AFTER
    for name in ("mine.txt", "dead.unfinished", "living.unfinished"):
        (tmp_path / name).write_bytes(bytes(1000))
        if name != "living.unfinished":
            os.utime(tmp_path / name, (old, old))
    CompilationCache(str(tmp_path), 1).add("key", b"")
    assert {p.name for p in tmp_path.iterdir()} == {"mine.txt", "living.unfinished"}


def test_the_environment_chooses_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIVELOOP_CACHE_DIR", str(tmp_path / "deep" / "down"))
    monkeypatch.setenv("FIVELOOP_CACHE_MAX_BYTES", "many")
    monkeypatch.setattr(compilation_cache, "_active", [])
    with pytest.raises(ValueError, match="FIVELOOP_CACHE_MAX_BYTES: expected a number of bytes"):
        adding(1)
    monkeypatch.setenv("FIVELOOP_CACHE_MAX_BYTES", "100000")
    adding(1)
    cache = compilation_cache.active_cache()
    assert cache is not None
    assert cache.max_bytes == 100_000
    assert len(entries(tmp_path / "deep" / "down")) == 1


def test_counts_add_up() -> None:
    count(compiled=1)
    count(compiled=2, evicted=1)
    assert compilation_counts() == CompilationCounts(compiled=3, evicted=1)

"""The compilation cache: compiled programs in a folder, one file each, for later processes.

A file holds `MAGIC`, a digest and the program. The digest covers the key as well, so that a file under the name of
another, or one that was cut short, is never loaded. A file appears whole, by a rename, so that any number of processes
may share the folder.
"""

import errno
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from fiveloop.core.util import free_after_fork

from ..dataclass import dataclass, replace
from . import lazy

DEFAULT_MAX_BYTES = 1 << 30
MAGIC = b"fiveloop program 1\n"
_HEADER = len(MAGIC) + 32
_FINISHED = ".fiveloop"
_UNFINISHED = ".unfinished"
_WITHIN = ("fiveloop.", "contextlib", "functools")
"""The beginnings of the names of modules between the user's line and this one."""
_ABANDONED_AFTER = 3600.0
"""Seconds after which an unfinished file is taken for one of a process that has died."""


@dataclass(frozen=True, slots=True)
class CompilationCounts:
    """How many programs this process has compiled, and how it has used the folder of the compilation cache.

    `written` counts new entries, `damaged` entries that could not be used, `evicted` entries deleted to keep the size.
    """

    compiled: int = 0
    loaded: int = 0
    written: int = 0
    damaged: int = 0
    evicted: int = 0


_lock = free_after_fork(threading.Lock())
_counts = [CompilationCounts()]


def compilation_counts() -> CompilationCounts:
    """How many programs this process has compiled, loaded from the compilation cache, and written to it.

    >>> compilation_counts().damaged
    0
    """
    return _counts[0]


def count(**more: int) -> None:
    """Add to the numbers of `compilation_counts`."""
    with _lock:
        now = _counts[0]
        _counts[0] = replace(now, **{name: getattr(now, name) + k for name, k in more.items()})


class _File(NamedTuple):
    """A file of the cache, in the order in which files are deleted."""

    last_use: float
    path: str
    size: int


class CompilationCache:
    """The programs in one folder, of `max_bytes` at most, if that is not None."""

    def __init__(self, folder: str, max_bytes: int | None) -> None:
        self.folder = os.path.abspath(os.path.expanduser(folder))
        self.max_bytes = max_bytes
        self._reported: set[str] = set()
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        # Find out now, and not at the first program, whether files can be written here.
        tried = self._unfinished()
        self._write(b"", tried)
        os.unlink(tried)
        self._evict()

    def find(self, key: str) -> bytes | None:
        """The program of a key, or None; an entry that is not what was written is reported, and is none."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                entry = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.report_damaged(key, str(error))
            return None
        with suppress(OSError):  # it may be another user's, or gone by now
            os.utime(path)
        program = entry[_HEADER:]
        if entry[:_HEADER] != _header(key, program):
            self.report_damaged(key, "its contents are not what fiveloop wrote")
            return None
        return program

    def add(self, key: str, program: bytes) -> None:
        """Keep a program, and delete those that were not used for the longest if there is too much."""
        entry = _header(key, program) + program
        if self.max_bytes is not None and len(entry) > self.max_bytes:
            return
        try:
            self._write(entry, self._path(key))
            count(written=1)
            self._evict()
        except OSError as error:
            self._report("write", f"a program could not be written: {error}")

    def report_damaged(self, key: str, why: str) -> None:
        """Say that an entry is of no use; it will be written again."""
        count(damaged=1)
        self._report("read", f"{key}{_FINISHED} is ignored and written again: {why}")

    def _report(self, kind: str, message: str) -> None:
        """Warn, of each kind of trouble once."""
        if kind not in self._reported:
            self._reported.add(kind)
            message = (
                f"compilation cache in {self.folder}: {message} (such trouble is reported once)"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=_level_of_user())

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, key + _FINISHED)

    def _unfinished(self) -> str:
        """A name in the folder that nobody else has, and nobody reads."""
        return os.path.join(self.folder, os.urandom(16).hex() + _UNFINISHED)

    def _write(self, contents: bytes, path: str) -> None:
        """Write a file such that all of it appears at once."""
        unfinished = self._unfinished()
        try:
            with open(unfinished, "xb") as file:
                file.write(contents)
            os.replace(unfinished, path)
        except BaseException:
            _delete(unfinished)
            raise

    def _evict(self) -> None:
        """Delete what dead processes have left, and the entries that are too much."""
        files = sorted(self._files())
        for file in files:
            if file.path.endswith(_UNFINISHED) and file.last_use < time.time() - _ABANDONED_AFTER:
                _delete(file.path)
        entries = [file for file in files if file.path.endswith(_FINISHED)]
        too_much = sum(file.size for file in entries) - (self.max_bytes or float("inf"))
        for file in entries:
            if too_much <= 0:
                return
            if _delete(file.path):
                count(evicted=1)
            too_much -= file.size

    def _files(self) -> Iterator[_File]:
        """What is in the folder; other processes may delete files meanwhile."""
        for found in os.scandir(self.folder):
            try:
                status = found.stat(follow_symlinks=False)
            except OSError:
                continue
            yield _File(status.st_mtime, found.path, status.st_size)


def _level_of_user() -> int:
    """The stack level at which the caller warns of the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_WITHIN):
        level, frame = level + 1, frame.f_back
    return level


def _delete(path: str) -> bool:
    """Delete a file; False if that cannot be done, or another process has done it."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _header(key: str, program: bytes) -> bytes:
    digest: bytes = lazy.hashlib().sha256(key.encode() + program).digest()
    return MAGIC + digest


FOLDER_VARIABLE = "FIVELOOP_CACHE_DIR"
MAX_BYTES_VARIABLE = "FIVELOOP_CACHE_MAX_BYTES"
_active: list[CompilationCache | None] = []


def use(cache: CompilationCache | None) -> None:
    """Look for programs in this cache from now on, or in none."""
    _active[:] = [cache]


def active_cache() -> CompilationCache | None:
    """The cache in use; if none was ever chosen, the cache that the environment asks for."""
    if not _active:
        use(_cache_of_environment())
    return _active[0]


def _cache_of_environment() -> CompilationCache | None:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    size = os.environ.get(MAX_BYTES_VARIABLE) or str(DEFAULT_MAX_BYTES)
    if not size.isdecimal():
        raise ValueError(f"{MAX_BYTES_VARIABLE}: expected a number of bytes, got {size!r}")
    return open_cache(folder, int(size), FOLDER_VARIABLE, MAX_BYTES_VARIABLE)


def open_cache(
    folder: str, max_bytes: int | None, folder_name: str, max_bytes_name: str
) -> CompilationCache:
    """The cache in a folder, which is made if need be; the names are those of the arguments, for errors."""
    if max_bytes is not None and max_bytes <= 0:
        raise ValueError(f"{max_bytes_name}: expected a positive number of bytes, got {max_bytes}")
    try:
        return CompilationCache(folder, max_bytes)
    except OSError as error:
        code = errno.ENOTDIR if isinstance(error, FileExistsError) else error.errno
        raise OSError(
            code,
            f"{folder_name}: expected a folder in which files can be written, got {folder!r} "
            f"({os.strerror(code or 0)}); choose another folder",
        ) from None

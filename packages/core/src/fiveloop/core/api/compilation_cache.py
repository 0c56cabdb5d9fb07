"""Compiled programs on disk: which folder keeps them, and how many were compiled or loaded."""

from __future__ import annotations

import os

from fiveloop.core.backend import compilation_cache
from fiveloop.core.backend.compilation_cache import DEFAULT_MAX_BYTES
from fiveloop.core.trace.boundary import boundary


@boundary
def enable_compilation_cache(
    path: str | os.PathLike[str], *, max_bytes: int | None = DEFAULT_MAX_BYTES
) -> None:
    """Keep compiled programs in the folder `path`, and load from there what another process has compiled.

    Eager operations are kept, too; programs that call Python are not. Any number of processes may share the folder.
    What was not used for the longest is deleted while there are more than `max_bytes`; None sets no limit. The
    folder holds machine code: choose one that only trusted users can write to.

    `FIVELOOP_CACHE_DIR` and `FIVELOOP_CACHE_MAX_BYTES` in the environment do the same.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     enable_compilation_cache(folder, max_bytes=10**9)
    ...     disable_compilation_cache()
    """
    what = "enable_compilation_cache"
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{what}: expected `path` to be the path of a folder, got {path!r}")
    if max_bytes is not None and type(max_bytes) is not int:
        raise TypeError(
            f"{what}: expected `max_bytes` to be an int, or None for no limit, got {max_bytes!r}"
        )
    compilation_cache.use(
        compilation_cache.open_cache(
            os.fspath(path), max_bytes, f"{what}: `path`", f"{what}: `max_bytes`"
        )
    )


def disable_compilation_cache() -> None:
    """Compile every program in this process, whatever the environment says; the folder stays as it is.

    >>> disable_compilation_cache()
    """
    compilation_cache.use(None)

"""The user's line of an equation, a tracer or an error."""

from __future__ import annotations

import os
import sys
from functools import partial
from inspect import unwrap
from types import CodeType, FrameType
from typing import NamedTuple

import numpy as np

_PORTIONS = ("core", "state", "loops", "remat", "numpy", "random", "nn", "testing")
_STDLIB = os.path.dirname(os.__file__) + "/"
# The namespace lies in several folders where packages run from their sources.
_INTERNAL = tuple(
    f"{root}/{name}/" for root in sys.modules["fiveloop"].__path__ for name in _PORTIONS
)
_SKIPPED = (*_INTERNAL, _STDLIB + "contextlib", _STDLIB + "functools")
# By the names of files: a code object as a key would never be freed, and its hash reads all of it.
_is_internal: dict[str, bool] = {}
# NumPy's and Python's functions are between the user and the library where they are given traced values; so is jax.
_BETWEEN = (*_SKIPPED, f"{os.path.dirname(np.__file__)}/", "<frozen ")
_is_users: dict[str, bool] = {}


_NO_MARKS = frozenset[str]()
_new_source = (
    tuple.__new__
)  # one is made for each operation, in half the time that a named tuple takes by itself


class Source(NamedTuple):
    """One line of the user's program; cheap to make, resolved when printed."""

    code: CodeType
    lasti: int
    marks: frozenset[str] = _NO_MARKS
    """What has been noted of the operations that come from here; it stays with them in every transform."""

    @property
    def line(self) -> int:
        """The line number."""
        for start, end, line in self.code.co_lines():
            if start <= self.lasti < end and line is not None:
                return line
        return self.code.co_firstlineno

    @property
    def file(self) -> str:
        """The file's name as Python knows it."""
        return self.code.co_filename

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.code.co_name})"


def is_internal(code: CodeType) -> bool:
    """Whether a code object belongs to the library and not to its user."""
    name = code.co_filename
    known = _is_internal.get(name)
    if known is None:
        known = _is_internal[name] = name.startswith(_SKIPPED)
    return known


def user_source(outermost: FrameType | None = None) -> Source | None:
    """The innermost frame of the user's program, of those within `outermost`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not outermost and frame is not None:
        code = frame.f_code
        # Most frames are of files that are known not to be the user's: asked of them at once, the search takes half.
        if _is_users.get(code.co_filename, True) and _belongs_to_user(code):
            return _new_source(Source, (code, frame.f_lasti, _NO_MARKS))
        frame = frame.f_back
    return None


def raised_at(error: BaseException) -> Source | None:
    """The innermost line of the user's program that an error has come through."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        if _belongs_to_user(traceback.tb_frame.f_code):
            found = Source(traceback.tb_frame.f_code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found


def _belongs_to_user(code: CodeType) -> bool:
    name = code.co_filename
    known = _is_users.get(name)
    if known is None:
        pythons_own = name.startswith(_STDLIB) and "-packages/" not in name
        between = pythons_own or name.startswith(_BETWEEN) or "/jax/_src/" in name
        known = _is_users[name] = not between
    if name != "<string>":
        return known
    # Dataclasses and named tuples make methods that have no file.
    generated = code.co_name.startswith("__") or code.co_varnames[:1] == ("_cls",)
    return known and not generated


def function_source(fun: object) -> str:
    """Where a function was defined, for error messages; one that a transform has made has no place of its own.

    A partial function is named as the function that it calls; an object that can be called has its type's name and
    the place of its `__call__`.
    """
    fun = unwrap(fun) if callable(fun) else fun
    while isinstance(fun, partial):
        fun = unwrap(fun.func)
    code = getattr(fun, "__code__", None)
    if code is not None and is_internal(code) and "<locals>" in code.co_qualname:
        return "a transform"
    name = getattr(fun, "__name__", None) or type(fun).__name__
    call = getattr(type(fun).__call__, "__code__", None) if callable(fun) else None
    code = code or (call if call and not is_internal(call) else None)
    return f"{name} at {code.co_filename}:{code.co_firstlineno}" if code is not None else str(name)

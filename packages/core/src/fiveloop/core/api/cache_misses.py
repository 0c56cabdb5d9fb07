"""Why a jitted function was traced again: what differs from the call before it that was most alike."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple

from fiveloop.core import errors, ir, pytree
from fiveloop.core.api import flatten, operands

Tell = Callable[[str], object]


class Signature(NamedTuple):
    """All that a trace depends on beside the function: types of arguments, static ones, what is around the call."""

    tree: Any
    avals: tuple[ir.Aval, ...]
    static: tuple[tuple[int | str, Hashable], ...]
    context: tuple[tuple[Hashable, Hashable], ...]


_listeners: list[Tell] = []
_seen: weakref.WeakSet[CodeType] = weakref.WeakSet()


@contextmanager
def explain_cache_misses(tell: Tell = print) -> Iterator[None]:
    """Within the block, `tell` gets a line for each call of a jitted function that has to be traced: why it has to.

    >>> import numpy as np
    >>> from fiveloop.core import jit
    >>> double = jit(lambda x: x * 2)
    >>> with explain_cache_misses(lambda line: print(line.partition(" at ")[0])):
    ...     ys = double(np.ones(2, "f4")), double(np.ones(2, "f4")), double(np.ones(3, "f4"))
    jit of <lambda> is traced: it has not been called before;
    jit of <lambda> is traced: argument `x` is f32[3] now, and was f32[2];
    """
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


def note_miss(
    fun: Callable[..., Any], naming: flatten.Naming, mine: Signature, known: Iterable[Signature]
) -> None:
    """Tell those who want to know why a function is traced."""
    code = getattr(fun, "__code__", None)
    if _listeners:
        others = [(_differences(fun, naming, mine, other), other) for other in known]
        if others:
            reasons, _ = min(reversed(others), key=lambda pair: len(pair[0]))
        else:
            reasons = [_NEW if code in _seen else "it has not been called before"]
        why = "; ".join(reasons) or "it closes over traced values, which are others now"
        where = errors.at_source(ir.user_source()).replace("\n ", "")
        for tell in list(_listeners):
            tell(f"jit of {flatten.function_name(fun)} is traced: {why};{where}")
    if isinstance(code, CodeType):
        _seen.add(code)


_NEW = (
    "`jit` was called anew, on a function made anew whose code is known, but which may differ by what it reaches; call "
    "`jit` once, outside of the loop, and pass what changes as an argument"
)


def _differences(
    fun: Callable[..., Any], naming: flatten.Naming, mine: Signature, other: Signature
) -> list[str]:
    found: list[str] = []
    if mine.tree != other.tree:
        found.append(f"the arguments have the structure {mine.tree} now, and had {other.tree}")
    else:
        found += _of_types(naming, mine, other)
    if mine.static != other.static:
        values: dict[int | str, Hashable] = {**dict(other.static)}
        changed = [k for k, key in mine.static if values.get(k) != key]
        names = [flatten.argument_name(fun, k) if isinstance(k, int) else f"`{k}`" for k in changed]
        what = ", ".join(names) or "which of them are given"
        found.append(f"static argument {what} has another value")
    if mine.context != other.context:
        now: dict[Hashable, Hashable] = dict(mine.context)
        before: dict[Hashable, Hashable] = dict(other.context)
        names = [str(k) for k in {**now, **before} if now.get(k) != before.get(k)]
        found.append(f"the context is another: {', '.join(names)}")
    return found


def _of_types(naming: flatten.Naming, mine: Signature, other: Signature) -> list[str]:
    paths: Sequence[Any] = []
    if not isinstance(mine.tree, operands.OperandTree):
        leaves = mine.tree.unflatten(range(len(mine.avals)))
        paths = [path for path, _ in pytree.tree_flatten_with_path(leaves)[0]]
    found = []
    for k, (now, before) in enumerate(zip(mine.avals, other.avals, strict=True)):
        if now is before:
            continue
        name = naming(paths[k]).split(": ", 1)[1] if paths else f"operand {k}"
        text = f"{name} is {now} now, and was {before}"
        if now.strong() is before.strong():
            weak = "it" if now.weak_type else "the other"
            text += f" ({weak} is weakly typed, as a Python number is)"
        found.append(text)
    return found

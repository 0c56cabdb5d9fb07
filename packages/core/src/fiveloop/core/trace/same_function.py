"""When two functions count as the same, so that a trace of one serves the other.

A function that is made anew at each call (`lambda c, x: ...` in a loop) is the same function if its code, its
defaults, the globals that it uses and what it closes over are equal, and all of these are immutable through and
through. If anything that it can reach may change, nothing is remembered, and it is traced again.
"""

from __future__ import annotations

import builtins
import dis
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fiveloop.core import arrays, ir, util
from fiveloop.core.dataclass import dataclass, fields, is_dataclass, is_frozen
from fiveloop.core.trace import modes, tracer
from fiveloop.core.trace.stage import aliasing
from fiveloop.core.util import R

LARGEST_KEPT = 4096
"""An array of more elements is not kept alive for what was traced with it: such a function is traced again."""


def traced_once(key: Hashable, funs: Sequence[object], make: Callable[[], R]) -> R:
    """The result of `make`, which traces `funs`: outside of traces once, for the same functions and equal keys.

    `key` holds all other inputs of the result, which must not hold tracers. Of functions that differ only by numbers
    that they close over, a few are remembered: such a number may change at each call.
    """
    if not tracer.is_eager() or tracer.checks_leaks():
        # What changes the meaning of a trace: an outer one, nans looked for, leaks looked for.
        return make()
    return _made_once(key, funs, make)


def first_equal(fun: R) -> R:
    """The first function that is the same as this one, or this one if it may change."""
    return _made_once(first_equal, [fun], lambda: fun)


def _made_once(key: Hashable, funs: Sequence[object], make: Callable[[], R]) -> R:
    reader = _Reader()
    full = _full_key(key, funs, reader)
    if full is None:
        return make()
    known = _traced.find(full)
    if known is not None:
        return known.result  # type: ignore[no-any-return]  # what `make` gave for this key
    if reader.has_numbers:
        # Only a few of a group are kept.
        group = _full_key(key, funs, _Reader(tells_numbers=False))
        members = (*(_groups.find(group) or ()), full)
        _groups.add(group, members[-FEW:])
        for old in members[:-FEW]:
            _traced.remove(old)
    with aliasing():
        found = make()
    _traced.add(full, _Known(found, reader.arrays))
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    """A trace, and the arrays that its function closes over."""

    result: Any
    arrays: list[_Weakly]

    def is_dead(self) -> bool:
        """Whether the function cannot come again."""
        return any(x.is_dead for x in self.arrays)


_traced: util.BoundedTable[_Known] = util.BoundedTable(256)
_groups: util.BoundedTable[tuple[Hashable, ...]] = util.BoundedTable(256)
FEW = 8
"""So many functions are remembered that differ only by numbers."""


def forget_traces() -> None:
    """Free all traces and programs of eager operations, loops and branches outside `jit`.

    Functions are traced again at their next call. Jitted functions keep their programs.

    >>> forget_traces()
    """
    for forget in util.FORGET:
        forget()


def _full_key(key: Hashable, funs: Sequence[object], reader: _Reader) -> Hashable | None:
    try:
        full = (key, modes.trace_context(), *[reader.key(fun) for fun in funs])
        hash(full)
    except (_MayChange, TypeError, RecursionError):
        return None
    return full


class _MayChange(Exception):
    """Something that a function can reach may change."""


@dataclass(frozen=True, slots=True, eq=False)
class _Itself:
    """Equal only to the wrapper of the same object."""

    x: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.x is self.x

    def __hash__(self) -> int:
        return id(self.x)


class _Weakly:
    """Equal only to the wrapper of the same array, as long as there is the array; traces of it go with the array."""

    __slots__ = ("_hash", "_ref")

    def __init__(self, x: arrays.Array) -> None:
        self._hash = id(x)
        self._ref = weakref.ref(x, lambda _: _traced.drop(_Known.is_dead))

    @property
    def is_dead(self) -> bool:
        """Whether the array is gone."""
        return self._ref() is None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Weakly) and (x := self._ref()) is not None and other._ref() is x

    def __hash__(self) -> int:
        return self._hash


class _Reader:
    """Reads all that a function can reach; functions met before are their places.

    Without `tells_numbers`, the keys of functions that differ by numbers alone are equal.
    """

    def __init__(self, tells_numbers: bool = True) -> None:
        self._seen: dict[int, int] = {}
        self._tells_numbers = tells_numbers
        self.has_numbers = False
        self.arrays: list[_Weakly] = []

    def key(self, x: Any) -> Hashable:
        """A key that is equal for what is equal and of equal type, or `_MayChange`."""
        kind = type(x)
        if kind in _NUMBERS:
            self.has_numbers = True
            if not self._tells_numbers:
                return (kind,)
        found = util.exact_key(x, self.key)
        if found is not None:
            return found
        if kind in _SINGLE:
            return x  # type: ignore[no-any-return]  # there is one of each type
        read = _READERS.get(kind)
        if read is not None:
            return read(self, x)
        if isinstance(x, (ir.Aval, ir.Primitive, np.dtype, np.ufunc)):
            return x
        if isinstance(x, type) or kind is _NUMPY_FUNCTION:
            return _trusted(x)
        if _root(kind.__module__) == "fiveloop":
            return self._own_object(x, kind)
        raise _MayChange

    def _own_object(self, x: Any, kind: type) -> Hashable:
        """An object of the library's own is the same as another if what it says that it depends on is."""
        if hasattr(kind, "depends_on"):
            return (kind, *[self.key(item) for item in x.depends_on])
        if is_dataclass(kind) and is_frozen(kind):
            return (kind, *[self.key(getattr(x, field.name)) for field in fields(kind)])
        raise _MayChange

    def array(self, x: arrays.Array) -> Hashable:
        """An array cannot change, so it counts by identity; its elements are not compared."""
        if x.size > LARGEST_KEPT:
            raise _MayChange
        held = _Weakly(x)
        self.arrays.append(held)
        return held

    def items(self, x: tuple[Any, ...]) -> Hashable:
        """The items of a tuple."""
        return (tuple, *[self.key(item) for item in x])

    def partial(self, x: partial[Any]) -> Hashable:
        """The function and the arguments of a partial call."""
        named = sorted(x.keywords.items())
        return (partial, self.key(x.func), self.items(x.args), self.items(tuple(named)))

    def builtin(self, x: Any) -> Hashable:
        """A function of C, that of a module and not of an object."""
        if not isinstance(x.__self__, (types.ModuleType, types.NoneType)) or x in _UNTRUSTED:
            raise _MayChange
        return _trusted(x)

    def function(self, x: types.FunctionType) -> Hashable:
        """The code, and all that it can reach."""
        # Where the code is from; `__module__` may have been copied from another function.
        own = _root(x.__globals__.get("__name__", "")) in _TRUSTED
        if own and x.__closure__ is None:
            return _Itself(x)
        if not own and x.__dict__.keys() - {"__wrapped__"}:
            raise _MayChange
        if id(x) in self._seen:
            return self._seen[id(x)]
        self._seen[id(x)] = len(self._seen)
        try:
            cells = [cell.cell_contents for cell in x.__closure__ or ()]
        except ValueError:
            raise _MayChange from None
        named = sorted((x.__kwdefaults__ or {}).items())
        return (
            x.__code__,
            self.items(x.__defaults__ or ()),
            self.items(tuple(named)),
            self.items(tuple(cells)),
            () if own else self._globals(x),
        )

    def _globals(self, x: types.FunctionType) -> Hashable:
        names = _names(x.__code__)
        if names is None:
            raise _MayChange
        found: list[Hashable] = []
        for name in names.loaded:
            if name in x.__globals__:
                value = x.__globals__[name]
            else:
                value = getattr(builtins, name, None)
            if isinstance(value, types.ModuleType):
                found.append(self._module(value, names.attributes))
            else:
                found.append(self.key(value))
        return tuple(found)

    def _module(self, module: types.ModuleType, names: Sequence[str]) -> Hashable:
        """What is taken from a module, as far as the code's names tell; the library's own modules stay as they are."""
        root = _root(module.__name__)
        if root == "fiveloop":
            return module.__name__
        # NumPy loads its random draws when they are asked for.
        if module.__name__ not in _TRUSTED or (root == "numpy" and "random" in names):
            raise _MayChange
        taken = [module.__dict__[name] for name in names if name in module.__dict__]
        if any(isinstance(x, types.ModuleType) for x in taken):
            raise _MayChange
        return (module.__name__, *[self.key(x) for x in taken])


def _root(module: str) -> str:
    return module.partition(".")[0]


def _trusted(x: Any) -> Hashable:
    """A class or a function of a module whose contents stay as they are."""
    module = getattr(x, "__module__", None) or "builtins"
    if _root(module) not in _TRUSTED or module.startswith("numpy.random"):
        raise _MayChange
    return _Itself(x)


@dataclass(frozen=True, slots=True)
class _Names:
    """The globals that code loads, and all names of attributes in it."""

    loaded: tuple[str, ...]
    attributes: tuple[str, ...]


@util.remembered(4096)
def _names(code: types.CodeType) -> _Names | None:
    """The names in code and in the code within it; None if it imports, or sets what is not its own."""
    loaded: dict[str, None] = {}
    attributes: dict[str, None] = {}
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            loaded[instruction.argval] = None
        elif instruction.opname in _REACHES_OUT or (
            instruction.opname in _SETS_CELL and instruction.argval in code.co_freevars
        ):
            return None
        elif instruction.opcode in dis.hasname:
            attributes[instruction.argval] = None
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names = _names(inner)
            if names is None:
                return None
            loaded.update(dict.fromkeys(names.loaded))
            attributes.update(dict.fromkeys(names.attributes))
    return _Names(tuple(loaded), tuple(attributes))


_REACHES_OUT = frozenset(
    "IMPORT_NAME STORE_GLOBAL DELETE_GLOBAL STORE_NAME LOAD_FROM_DICT_OR_GLOBALS "
    "LOAD_FROM_DICT_OR_DEREF".split()
)
_SETS_CELL = frozenset(["STORE_DEREF", "DELETE_DEREF"])
_NUMPY_FUNCTION = type(np.sum)
_TRUSTED = frozenset(
    "fiveloop numpy math cmath operator _operator builtins functools _functools".split()
)
_UNTRUSTED = frozenset([eval, exec, globals, locals, vars, open, input, __import__, dir])
_NUMBERS = frozenset([int, float, complex])
_SINGLE = frozenset([types.EllipsisType, types.NotImplementedType])
_READERS: dict[type, Callable[[_Reader, Any], Hashable]] = {
    arrays.Array: _Reader.array,
    arrays.Scalar: lambda reader, x: (x.aval, x.host.tobytes(), reader.key(x.number)),
    partial: _Reader.partial,
    types.FunctionType: _Reader.function,
    types.BuiltinFunctionType: _Reader.builtin,
}

"""Fused calls: outside of traces, a public function of arrays is compiled as one program.

Op by op, a function would cost a call for each of its primitives, and the Python around them. A fused function is
traced once per types of its operands; what remains of a call is a look-up in a table. Everything else is left to the
function itself: traced values, Refs, modes and settings, NumPy's arrays, and whatever fails, so that errors are its
own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import lru_cache, wraps
from typing import Any, Literal, cast

import numpy as np

from fiveloop.core import arrays, ir, pytree, util
from fiveloop.core.backend.call import Direct, make_direct
from fiveloop.core.backend.client import Buffer, aval_of
from fiveloop.core.lower.dispatch import shared_program
from fiveloop.core.trace.boundary import hide_frames
from fiveloop.core.trace.modes import SPECIAL
from fiveloop.core.trace.stage import stage_closed
from fiveloop.core.trace.tracer import BUSY, EVAL, current
from fiveloop.core.util import Fun, P, R

Numbers = Literal["operands", "static"]

LIMIT = 1024
"""How many programs a function keeps."""
VARIANTS = 16
"""How many of them differ in static arguments alone: where these change at each call, no more are compiled."""
_NUMBERS = (bool, int, float, complex)
_KINDS = frozenset(_NUMBERS)
_lock = util.free_after_fork(threading.Lock())


def _keep(table: dict[Hashable, Any], key: Hashable, item: Any) -> Any:
    """Put an item into a table that other threads read, and that forgets its oldest item when it is full."""
    with _lock:
        if len(table) >= LIMIT:
            del table[next(iter(table))]
        table[key] = item
    return item


class _Programs:
    """The programs of a function, by the types of its operands and its static arguments; False where there is none."""

    def __init__(self, fun: Fun, numbers: Numbers | None) -> None:
        self.fun = fun
        self.table: dict[Hashable, Direct | Literal[False]] = {}
        self._variants: dict[Hashable, int] = {}
        code, types = fun.__code__, fun.__annotations__
        self._names = code.co_varnames[: code.co_argcount]
        self._operands = {name for name, kind in types.items() if "ArrayLike" in str(kind)}
        self._places = [k for k, name in enumerate(self._names) if name in self._operands]
        takes_two = len(self._names) == 2 == len(self._places)
        self._numbers = numbers or ("operands" if takes_two else None)
        self.promotes = self._numbers == "operands"
        self.makes_arrays = not self._operands
        util.FORGET.extend([self.table.clear, self._variants.clear])

    def with_numbers(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments, with Python numbers in place of arrays as arrays of the one dtype of the others."""
        if args and not kwargs and _KINDS.issuperset(map(type, args)):
            like: ir.Aval | None = _of_numbers(tuple(map(type, args[: len(self._places)])))
        else:
            like = _like((*args, *kwargs.values()))
        if like is None:
            return args, kwargs
        given = list(args)
        for k in self._places:
            if k < len(given) and type(given[k]) in _NUMBERS:
                given[k] = _as_array(given[k], like)
        for name in self._operands.intersection(kwargs):
            kwargs = {**kwargs, name: _as_array(kwargs[name], like)}
        return given, kwargs

    def make(self, key: Hashable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The program for arguments that have not been met before."""
        named = [*zip(self._names, args, strict=False), *kwargs.items()]
        if self._numbers != "static" and any(
            name in self._operands and isinstance(x, _NUMBERS) for name, x in named
        ):
            return False  # a number in place of an array may be another one at each call
        kind = _kind(key)
        count = self._variants.get(kind, 0)
        if count == VARIANTS:
            return False
        _keep(self._variants, kind, count + 1)
        program: Direct | Literal[False] = False
        with suppress(Exception):  # the function itself says what is wrong, or may look at elements
            program = _program(self.fun, args, kwargs)
        return _keep(self.table, key, program)


def _program(fun: Fun, args: Sequence[Any], kwargs: dict[str, Any]) -> Direct | Literal[False]:
    leaves, tree = pytree.tree_flatten((tuple(args), tuple(kwargs.values())))
    places = [k for k, x in enumerate(leaves) if type(x) is arrays.Array]
    out_trees: list[pytree.TreeDef] = []

    def flat(*operands: arrays.Value) -> list[Any]:
        given = dict(enumerate(leaves)) | dict(zip(places, operands, strict=True))
        positional, values = tree.unflatten(given.values())
        result = fun(*positional, **dict(zip(kwargs, values, strict=True)))
        outs, out_tree = pytree.tree_flatten(result)
        out_trees.append(out_tree)
        return outs

    jaxpr = stage_closed(flat, [leaves[k].aval for k in places], fun.__name__)
    computed = {v for eqn in jaxpr.eqns for v in eqn.outvars}
    # An argument that is handed on, or a constant, needs no program.
    if not jaxpr.outvars or jaxpr.effects or not computed.issuperset(jaxpr.outvars):
        return False
    program = shared_program(jaxpr)
    if program.needs_python or program.returning:
        return False
    kept = [*[True] * len(program.consts), *program.kept]
    return make_direct(program.executable, out_trees[0], consts=program.consts, kept=kept)


def _key(args: Sequence[Any], kwargs: dict[str, Any], buffers: list[Buffer]) -> Hashable | None:
    """The types of the arrays, which go into `buffers`, and all other arguments; None if some cannot be compared."""
    key: list[Hashable] = [*kwargs]
    for x in (*args, *kwargs.values()) if kwargs else args:
        kind = type(x)
        if kind is arrays.Array:
            buffers.append(x._a)
            key.append(aval_of(x._a))
        elif kind in util.PLAIN:
            key.append((kind, x))
        elif (part := _part(x, buffers)) is not None:
            key.append(part)
        else:
            return None
    return key[0] if len(key) == 1 else tuple(key)


def _part(x: Any, buffers: list[Buffer]) -> Hashable | None:
    """The type of an array, or the class and the value of another argument, which tell 1, 1.0 and True apart."""
    kind = type(x)
    if kind is tuple or kind is list:
        parts = _key(x, {}, buffers)
        return None if parts is None else (kind, len(x), parts)
    if isinstance(x, (arrays.Value, np.ndarray)):
        return None
    found = util.exact_key(x, lambda item: _key([item], {}, buffers))
    if found is not None:
        return found
    # What has a dtype and no shape names one; what has both is another library's array.
    names_dtype = not hasattr(x, "shape") and isinstance(getattr(x, "dtype", None), np.dtype)
    return (kind, x) if names_dtype or isinstance(x, (type, np.dtype)) else None


def _kind(key: Any) -> Hashable:
    """A key without the values of static arguments."""
    if not isinstance(key, tuple):
        return key  # type: ignore[no-any-return]  # a type, or a name
    if key and isinstance(key[0], type):
        return (*key[:2], _kind(key[2])) if key[0] in (tuple, list) else key[0]
    return tuple(map(_kind, key))


_numbers: dict[Hashable, arrays.Array] = {}
util.FORGET.append(_numbers.clear)


def _number(aval: ir.Aval, x: Any) -> arrays.Array | None:
    """A Python number on the device in the dtype of an array that it stands beside, if the array keeps its dtype."""
    kind = type(x)
    if kind not in _NUMBERS:
        return None
    key = (aval, kind, x or str(x))  # 0.0 and -0.0 are equal
    found = _numbers.get(key)
    return found if found is not None else _new_number(key, aval, x)


def _new_number(key: Hashable, aval: ir.Aval, x: Any) -> arrays.Array | None:
    kind: Any = type(x)
    typed = arrays.partner(aval, kind)
    own = arrays.Typed(aval.dtype, aval.weak_type)
    if aval.weak_type and arrays.join((own, arrays.python_typed(x))) == own:
        typed = own
    if typed is not None:
        with suppress(TypeError, OverflowError):
            host = arrays.host_scalar(x, typed, "a number")
            made: arrays.Array = _keep(_numbers, key, arrays.to_array(host))
            return made
    return None


def _pair(x: Any, y: Any) -> list[Buffer] | None:
    """An array and a Python number beside it, in their order."""
    if type(x) is arrays.Array:
        other = _number(x._a.aval, y)
        return None if other is None else [x._a, other._a]
    other = _number(y._a.aval, x) if type(y) is arrays.Array else None
    return None if other is None else [other._a, y._a]


def _as_array(x: Any, like: ir.Aval) -> Any:
    """A Python number as an array like another one, if it can be that; all else as it is."""
    number = _number(like, x)
    return x if number is None else number


@lru_cache(maxsize=256)
def _of_numbers(kinds: tuple[Any, ...]) -> ir.Aval:
    """The type that Python numbers of these kinds are brought to."""
    dtype, weak_type = arrays.join(tuple([arrays.python_typed(kind(0)) for kind in kinds]))
    return ir.ShapedArray((), dtype, weak_type)


def _like(args: Sequence[Any]) -> ir.Aval | None:
    """The type of the arrays among arguments, masks aside, if they are of one dtype."""
    found: ir.Aval | None = None
    for x in args:
        if type(x) is arrays.Array and (aval := x._a.aval).dtype != np.bool_:
            if found is not None and aval.dtype != found.dtype:
                return None
            if found is None or found.weak_type:
                found = aval
    return found


def is_fused() -> bool:
    """Whether calls on arrays are fused here: nothing is traced, and no mode is on."""
    return not BUSY or (current.trace is EVAL and not SPECIAL.count)


def number_to_write(aval: ir.Aval, x: Any) -> Buffer | None:
    """A Python number on the device in a dtype that surely holds it; None for all others, which need a look."""
    kind, dtype_kind = type(x), aval.dtype.kind
    fits = kind is float and dtype_kind == "f" and abs(x) <= 60_000
    fits = fits or (kind is int and dtype_kind in "iuf" and 0 <= x < 128)
    number = _number(aval, x) if fits and not aval.weak_type else None
    return None if number is None else number.buffer


def fused(
    fun: Callable[P, R], *, numbers: Numbers | None = None, otherwise: Fun | None = None
) -> Callable[P, R]:
    """The function, with each call on arrays outside a trace compiled as one program; other calls go to `otherwise`.

    Its operands are the arrays, alone or in lists and tuples; everything else is static. `numbers` says what a Python
    number in place of an array is: "operands" (an operand, promoted together with all others; the default of a function
    of two arrays) or "static". Other functions are not fused when they are given such numbers.

    >>> calls = []
    >>> double = fused(lambda x: calls.append(x) or x * 2.0)
    >>> x = to_array(as_value(np.ones(2)))
    >>> print(double(x), double(x), calls)
    [2. 2.] [2. 2.] [Traced<f64[2]>]
    """
    programs = _Programs(fun, numbers)
    call = _call(programs, otherwise or fun)
    return cast(Callable[P, R], wraps(fun)(call))


def _call(programs: _Programs, otherwise: Fun) -> Fun:
    find, kind, promotes = programs.table.get, arrays.Array, programs.promotes

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if BUSY and (current.trace is not EVAL or SPECIAL.count):
                return otherwise(*args, **kwargs)
            count = 0 if kwargs else len(args)
            given = None
            # The common cases first: one array, or two.
            if count == 1 and type(args[0]) is kind:
                buffers = [args[0]._a]
                key = aval_of(buffers[0])
            elif count == 2 and type(args[0]) is type(args[1]) is kind:
                buffers = [args[0]._a, args[1]._a]
                key = (aval_of(buffers[0]), aval_of(buffers[1]))
            elif promotes and count == 2 and (pair := _pair(*args)) is not None:
                buffers = pair
                key = (aval_of(pair[0]), aval_of(pair[1]))
            else:
                given = programs.with_numbers(args, kwargs) if promotes else (args, kwargs)
                buffers = []
                key = _key(*given, buffers)
                if key is None or not (buffers or programs.makes_arrays):
                    return otherwise(*args, **kwargs)
            program = find(key)
            if program is None:
                program = programs.make(key, *given or ([*map(arrays.of_buffer, buffers)], {}))
            if program:
                run, handlers, build = program
                try:
                    outs = run(buffers).consume_with_handlers(handlers)
                except Exception:  # the function itself says what is wrong
                    return otherwise(*args, **kwargs)
                if build is not None:
                    return build(outs)
                out = kind()  # as `of_buffer` does: here a call of Python counts
                out._a, out._note = outs[0], None
                return out
            return otherwise(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return call

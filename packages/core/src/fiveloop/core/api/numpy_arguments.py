"""Calls with NumPy arrays and Python numbers among the arguments, at nearly the price of a call with arrays.

C++ takes such leaves as they are, and cannot tell all of them apart: it reads an array of foreign byte order as if it
were native, rounds 64 bits to 32 where jax has said so, knows no types of Python numbers, and may read memory after
the call has returned. So each leaf is changed on its way, by a rule of its type; what has no rule goes the slow way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from fiveloop.core import arrays, ir
from fiveloop.core.api.arguments import Chosen
from fiveloop.core.api.static import Exact, exactly
from fiveloop.core.backend import client
from fiveloop.core.backend.call import Miss, fast_function, reads_numbers_wide
from fiveloop.core.backend.tree import TREE, TreeDef
from fiveloop.core.trace.boundary import pass_out

Rule = Callable[[Any], Any]
Call = Callable[..., Any]

SMALL = 1 << 16
"""Up to so many bytes an array is copied on the host, from there on to the device (measured)."""


class _Unfit(Exception):
    """A leaf that only the slow way takes: it makes another type of it, or an error."""


def _from_int(x: int) -> Any:
    if -0x80000000 <= x <= 0x7FFFFFFF:
        return x
    raise _Unfit


def _from_numpy(x: np.ndarray[Any, Any]) -> Any:
    """A copy, which nobody writes to after the call; of 64 bits it is one on the device."""
    narrow = _NARROW.get(x.dtype)
    if narrow is None:
        raise _Unfit
    return x.copy() if narrow and x.nbytes <= SMALL else _put(x)


def _put(x: np.ndarray[Any, Any], weak_type: bool = False) -> Any:
    return client.put_copy(x, _aval(x.shape, x.dtype, weak_type))


@lru_cache(1024)
def _aval(shape: tuple[int, ...], dtype: Any, weak_type: bool) -> ir.ShapedArray:
    return ir.ShapedArray(shape, dtype, weak_type)


def _from_wide(x: np.generic) -> Any:
    """NumPy's float64 is a float, and so yields to the dtype of other operands; so is complex128 a complex."""
    return _put(np.asarray(x), isinstance(x, (float, complex)))


def _as_it_is(x: Any) -> Any:
    return x


_DTYPES = [
    np.dtype(t)
    for t in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32),
        *(np.uint64, np.float16, np.float32, np.float64, np.complex64, np.complex128),
        ml_dtypes.bfloat16,
    )
]
_WIDE = frozenset(map(np.dtype, (np.int64, np.uint64, np.float64, np.complex128)))
_NARROW = {dtype: dtype not in _WIDE for dtype in _DTYPES}
_RULES: dict[type, Rule] = {
    arrays.Array: operator.attrgetter("_a"),
    bool: _as_it_is,
    int: _from_int,
    float: operator.pos,  # as it is, by a function of C
    complex: operator.pos,
    np.ndarray: _from_numpy,
    **{dtype.type: _from_wide if dtype in _WIDE else _as_it_is for dtype in _DTYPES},
}
_NO_OTHERS = frozenset([arrays.Array, Exact])
_PYTHON = frozenset([bool, int, float, complex])


def takes(leaf: object) -> bool:
    """Whether there is a rule for leaves of this type."""
    return type(leaf) in _RULES


class NumpyCall:
    """A call whose leaves are arrays, NumPy's arrays and numbers, and Python's; `slow` gets all others.

    C++ tells shapes and dtypes apart, and has one callable for each structure of arguments with the types of its
    leaves. `miss` is asked as on the C++ path. `run` is the call.
    """

    def __init__(self, name: str, miss: Miss, slow: Call, static: Chosen) -> None:
        self._name, self._miss, self._slow, self._static = name, miss, slow, static
        self._ones: dict[type, _Way] = {}
        self._pairs: dict[tuple[type, type], _Way] = {}
        self._trees: dict[Any, _Way] = {}
        self.call_arrays(slow)
        self.run = self._call()

    def call_arrays(self, arrays_only: Call) -> None:
        """Choose what gets calls of arrays alone from now on."""
        self._arrays_only = arrays_only
        array = arrays.Array
        self._ones[array] = arrays_only, (_as_it_is,)
        self._pairs[array, array] = arrays_only, (_as_it_is, _as_it_is)

    def clear(self) -> None:
        """Forget all signatures."""
        self._ones.clear()
        self._pairs.clear()
        self._trees.clear()

    def _call(self) -> Call:
        """The call: one argument, or two, that are no containers take a short way, and no frame of a guard's own."""
        of_one, of_two, slow = self._ones.get, self._pairs.get, self._slow

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                try:
                    if kwargs:
                        return self._with_trees(args, kwargs)
                    if len(args) == 1:
                        (x,) = args
                        way = of_one(type(x))
                        if way is not None:
                            quickly, (rule,) = way
                            return quickly(rule(x))
                    elif len(args) == 2:
                        x, y = args
                        way = of_two((type(x), type(y)))
                        if way is not None:
                            quickly, (rule, other) = way
                            return quickly(rule(x), other(y))
                    return self._with_trees(args, kwargs)
                except _Unfit:
                    return slow(*args, **kwargs)
            except Exception as error:
                pass_out(error)
                raise

        return run

    def _with_trees(self, args: Any, kwargs: Any) -> Any:
        static: tuple[Exact, ...] = ()
        if self._static:
            leaves, tree = TREE.flatten(self._static.changed(exactly, args, kwargs))
            static = tuple([x for x in leaves if type(x) is Exact])
        else:
            leaves, tree = TREE.flatten((args, kwargs))
        kinds = tuple(map(type, leaves))
        if _NO_OTHERS.issuperset(kinds):
            return self._arrays_only(*args, **kwargs)
        way = self._trees.get((tree, kinds, static))
        if way is None:
            way = self._trees[tree, kinds, static] = self._way(tree, kinds, static)
            if not static and not kwargs and kinds == tuple(map(type, args)):
                self._ones |= {kinds[0]: way} if len(kinds) == 1 else {}
                self._pairs |= {(kinds[0], kinds[1]): way} if len(kinds) == 2 else {}
        quickly, rules = way
        if static:
            leaves = [x for x in leaves if type(x) is not Exact]
        return quickly(*map(operator.call, rules, leaves))

    def _way(self, tree: TreeDef, kinds: Sequence[type], static: Sequence[Exact]) -> _Way:
        dynamic = [kind for kind in kinds if kind is not Exact]
        if not all(kind in _RULES for kind in dynamic):
            raise _Unfit

        def miss(*leaves: Any) -> Any:
            given, fixed = map(_opened, leaves), iter(static)
            whole = [next(fixed) if kind is Exact else next(given) for kind in kinds]
            args, kwargs = tree.unflatten(whole)
            result, fast = self._miss(*args, **kwargs)[:2]
            wide = not _PYTHON.isdisjoint(kinds) and reads_numbers_wide()
            return result, None if wide else fast

        run = fast_function(self._name, lambda *leaves: miss(*leaves)[0], miss)
        return run, tuple([_RULES[kind] for kind in dynamic])


_Way = tuple[Call, tuple[Rule, ...]]


def _opened(x: Any) -> Any:
    """A leaf as it was before its rule, as far as its type goes."""
    return arrays.Array(x) if type(x) is client.BUFFER_CLASS else x

"""Arguments of a call: static ones, those selected by `argnums` or by name, and NumPy arrays on the fast path."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from inspect import signature
from operator import index
from types import FunctionType
from typing import Any

import ml_dtypes
import numpy as np

from fiveloop.core import arrays, errors, ir, trace, util
from fiveloop.core.api import flat_function, flatten
from fiveloop.core.arrays import Value
from fiveloop.core.backend import client
from fiveloop.core.backend.call import Miss, fast_function, reads_numbers_wide
from fiveloop.core.backend.tree import TREE, TreeDef
from fiveloop.core.dataclass import dataclass
from fiveloop.core.util import Fun

_ADVICE: tuple[tuple[Any, str], ...] = (
    (list, "pass a tuple in place of a list"),
    (dict, "pass a tuple of its items in place of a dict"),
    (set, "pass a frozenset in place of a set"),
    (tuple, "make what it holds hashable: tuples in place of lists"),
    (
        trace.Tracer,
        "leave it out of the static ones, or close over it where a transform around traces all arguments: "
        "`lambda *others: f(..., n)`",
    ),
    (Value | np.ndarray, "leave it out of the static ones"),
)
"""What to do about a static argument that has no hash, by its type."""


_AS_IS = util.PLAIN | {FunctionType}


def exact(x: Any) -> Any:
    """A static argument as C++ and dictionaries may compare it."""
    return x if type(x) in _AS_IS else util.Exact(x)


def exactly(x: Any) -> util.Exact:
    """A static argument as such, whatever it is."""
    return x if type(x) is util.Exact else util.Exact(x)


def inexact(x: Any) -> Any:
    """Undo `exact`."""
    return x.value if type(x) is util.Exact else x


@dataclass(frozen=True, slots=True)
class Chosen:
    """Some arguments of a function, by place and by name."""

    nums: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nums or self.names)

    def of(self, args: Any, kwargs: Any) -> tuple[dict[int, Any], dict[str, Any]]:
        """Those of a call, by place and by name."""
        placed = {k: args[k] for k in self.nums if k < len(args)}
        return placed, {k: kwargs[k] for k in self.names if k in kwargs}

    def others(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The other arguments of a call."""
        if not self:
            return args, kwargs
        positional = tuple([x for k, x in enumerate(args) if k not in self.nums])
        return positional, {k: v for k, v in kwargs.items() if k not in self.names}

    def other_places(self, num_args: int) -> list[int]:
        """The places of the other arguments of a call."""
        return [k for k in range(num_args) if k not in self.nums]

    def of_others(self, fun: Fun, args: Any, kwargs: dict[str, Any]) -> Fun:
        """The function of the other arguments of a call, with these as they are."""
        return of_places(fun, *self.of(args, kwargs), self.other_places(len(args)))

    def naming(self, what: str, fun: object, num_args: int) -> flatten.Naming:
        """What the leaves of the other arguments are called."""
        return flatten.argument_naming(what, fun, self.other_places(num_args))

    def key(self, what: str, fun: Fun, args: Any, kwargs: Any) -> Any:
        """What tells calls apart in which these differ: their places or names, types and values.

        TypeError if one cannot be compared.
        """
        placed, named = self.of(args, kwargs)
        given: list[tuple[int | str, Any]] = [*placed.items(), *named.items()]
        for k, x in given:
            if util.has_hash(x) and not isinstance(x, trace.Tracer):
                continue
            called = flatten.argument_name(fun, k) if isinstance(k, int) else f"`{k}`"
            kinds = (advice for kind, advice in _ADVICE if isinstance(x, kind))
            raise TypeError(
                f"{what} of {flatten.function_name(fun)}: static argument {called} must be hashable, got "
                f"{errors.in_brief(x)}; {next(kinds, 'give its class a `__hash__`')}"
            )
        return tuple([(k, util.exact(x)) for k, x in given])

    def as_is(self, args: Any, kwargs: Any) -> bool:
        """Whether C++ may compare all of these in a call as they are, which takes less time to see than `exact`."""
        number = len(args)
        for k in self.nums:
            if -number <= k < number and type(args[k]) not in _AS_IS:
                return False
        return not kwargs or all(type(kwargs.get(name)) in _AS_IS for name in self.names)

    def changed(self, change: Callable[[Any], Any], args: Any, kwargs: Any) -> Any:
        """The arguments of a call, with `change` of each of these in its place."""
        if not self:
            return args, kwargs
        given = list(args)
        for k in self.nums:
            if -len(given) <= k < len(given):
                given[k] = change(given[k])
        return tuple(given), {k: change(x) if k in self.names else x for k, x in kwargs.items()}


def of_places(fun: Fun, fixed: dict[int, Any], named: dict[str, Any], places: Sequence[int]) -> Fun:
    """The function of the arguments at `places`; the others are `fixed`, and `named`.

    It holds these alone. More arguments than there are places come after all others.
    """

    def of_given(*given: Any, **others: Any) -> Any:
        placed = {**fixed, **dict(zip(places, given, strict=False))}
        full = [placed[k] for k in sorted(placed)]
        return fun(*full, *given[len(places) :], **others, **named)

    return of_given


def chosen_arguments(
    what: str, fun: Fun, nums: int | Sequence[int], names: str | Sequence[str], kind: str = "static"
) -> Chosen:
    """Arguments of a kind, as static ones, by place and by name: each is both, where the signature tells."""
    of = f"{what} of {flatten.function_name(fun)}"
    numbers = nums if isinstance(nums, (tuple, list)) else (nums,)
    try:
        places = tuple([index(None if isinstance(k, bool) else k) for k in numbers])  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{of}: {kind}_argnums must be an integer or a tuple of them, got {nums!r}; names go into {kind}_argnames"
        ) from None
    given = (names,) if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if not all(isinstance(name, str) for name in given):
        raise TypeError(f"{of}: {kind}_argnames must be a string or a tuple of them, got {names!r}")
    known = flatten.parameters(fun)
    if known is None:
        return Chosen(places, given)
    for name in given:
        if name not in known.names and not known.takes_names:
            raise ValueError(f"{of}: {kind}_argnames names {name!r}, which is no argument of it")
    placed = known.placed
    for k in places:
        if k < -len(placed) or (k >= len(placed) and not known.takes_more):
            raise ValueError(
                f"{of}: {kind}_argnums must name one of its {len(placed)} positional arguments, got {k}"
            )
    every_num = {k % len(placed) if placed and k < 0 else k for k in places}
    every_num |= {placed.index(n) for n in given if n in placed}
    every_name = {*given, *[placed[k] for k in every_num if k < len(placed)]}
    return Chosen(tuple(sorted(every_num)), tuple(sorted(every_name)))


@trace.boundary
def with_static(
    what: str,
    fun: Fun,
    nums: int | Sequence[int],
    names: str | Sequence[str],
    transform: Callable[[Fun], Fun],
) -> Fun:
    """A transform of the function of the other arguments, made at each call for its static ones."""
    static = chosen_arguments(what, fun, nums, names)

    @wraps(fun)
    @trace.guarded
    def call(*args: Any, **kwargs: Any) -> Any:
        static.key(what, fun, args, kwargs)
        rest = wraps(fun)(static.of_others(fun, args, kwargs))
        if flatten.parameters(fun) is not None:
            whole, fixed = signature(fun), static.of(args, kwargs)[1]
            places = enumerate(whole.parameters.values())
            kept = [q for k, q in places if k not in static.nums and q.name not in fixed]
            # What messages read.
            rest.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]
        positional, named = static.others(args, kwargs)
        return transform(rest)(*positional, **named)

    return call


Argnums = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Differentiation:
    """What a derivative is asked of: `what` names the transform in messages."""

    what: str
    fun: Fun
    argnums: Argnums
    has_aux: bool = False
    holomorphic: bool = False
    allow_int: bool = False
    real: bool = False

    def choose(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[flat_function.FlatFunction, list[Value]]:
        """The function of the arguments that `argnums` names, and their leaves, checked; the others are constants."""
        wanted = self._wanted(len(args))
        chosen = tuple(args[k] for k in wanted)

        others = {k: x for k, x in enumerate(args) if k not in wanted}
        of_wanted = of_places(self.fun, others, kwargs, wanted)

        def of_chosen(*given: Any) -> Any:
            with flatten.giving(mutable):
                return of_wanted(*given)

        naming = flatten.argument_naming(self.what, self.fun, wanted)
        values, tree = flatten.flatten_values((chosen, {}), naming)
        name = flatten.leaf_naming((chosen, {}), naming)
        for k, x in enumerate(values):
            self._check(x.aval, name, k)
        mutable = flatten.check_places((args, kwargs), flatten.argument_naming(self.what, self.fun))
        return flat_function.lending(of_chosen, tree, values, self.has_aux, self.fun)

    @property
    def of(self) -> str:
        """What messages begin with: "grad of f"."""
        return f"{self.what} of {flatten.function_name(self.fun)}"

    def one(self, parts: Any) -> Any:
        """The part of a single argument, or all of them."""
        return parts[0] if hasattr(self.argnums, "__index__") else parts

    def _wanted(self, num_args: int) -> list[int]:
        wanted = []
        given: Any = self.argnums
        several = isinstance(given, Sequence) and not isinstance(given, str)
        for k in given if several else (given,):
            if not hasattr(k, "__index__") or not -num_args <= index(k) < num_args:
                raise ValueError(
                    f"{self.of}: argnums must name some of its {num_args} positional arguments by number, got {k!r}"
                )
            wanted.append(index(k) % num_args)
        twice = next((k for k in wanted if wanted.count(k) > 1), None)
        if twice is not None:
            raise ValueError(
                f"{self.of}: argnums must name each argument once, got {self.argnums!r}, which names argument "
                f"{flatten.argument_name(self.fun, twice)} twice"
            )
        return wanted

    def _check(self, aval: ir.Aval, name: Callable[[int], str], k: int) -> None:
        if self.holomorphic and aval.dtype.kind != "c":
            raise TypeError(
                f"{name(k)} must be complex for a holomorphic derivative, got {aval}; convert it first, or leave "
                f"holomorphic out"
            )
        if not aval.differentiable and not self.allow_int:
            raise TypeError(
                f"{name(k)} must be floating to be differentiated, got {aval}; convert it first, or leave it out of "
                f"argnums"
            )
        if self.real and not self.holomorphic and aval.dtype.kind == "c":
            raise TypeError(
                f"{name(k)} must be real, got {aval}; say holomorphic=True if the function is, or use `jvp`"
            )


Rule = Callable[[Any], Any]

SMALL = 1 << 16
"""Up to so many bytes an array is copied on the host, from there on to the device (measured)."""


_INT32 = range(-0x80000000, 0x80000000)


class _Unfit(Exception):
    """A leaf that only the slow way takes: it makes another type of it, or an error."""


def _from_int(x: int) -> Any:
    if x in _INT32:
        return x
    raise _Unfit


def _from_numpy(x: np.ndarray[Any, Any]) -> Any:
    """A copy, which nobody writes to after the call; of 64 bits it is one on the device."""
    narrow = _NARROW.get(x.dtype)
    if narrow is None:
        raise _Unfit
    return client.host_copy(x) if narrow and x.nbytes <= SMALL else _put(x)


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
_NO_OTHERS = frozenset([arrays.Array, util.Exact])
_PYTHON = frozenset([bool, int, float, complex])


def are_arrays(leaves: Sequence[object]) -> bool:
    """Whether all leaves are arrays."""
    return all(type(x) is arrays.Array for x in leaves)


def read_by_cpp(leaf: object) -> bool:
    """Whether C++ reads a leaf as we do, and may keep the program for its type: arrays, and Python numbers.

    It has one type for all ints, so that one of more than 32 bits must not choose the program; it never reads such an
    int, but asks. NumPy's numbers of 64 bits it would read as 32.
    """
    if type(leaf) is arrays.Array:
        return True
    fits = type(leaf) in _PYTHON and (type(leaf) is not int or leaf in _INT32)
    return fits and not reads_numbers_wide()


def takes(leaf: object) -> bool:
    """Whether there is a rule for leaves of this type."""
    return type(leaf) in _RULES


class NumpyCall:
    """A call whose leaves are arrays, NumPy's arrays and numbers, and Python's; `slow` gets all others.

    C++ tells shapes and dtypes apart, and has one callable for each structure of arguments with the types of its
    leaves. `miss` is asked as on the C++ path. `run` is the call.
    """

    def __init__(self, name: str, miss: Miss, slow: Fun, static: Chosen) -> None:
        self._name, self._miss, self._slow, self._static = name, miss, slow, static
        self._ones: dict[type, _Way] = {}
        self._pairs: dict[tuple[type, type], _Way] = {}
        self._flats: dict[tuple[type | str, ...], tuple[_Way, list[str]]] = {}
        self._trees: dict[Any, _Way] = {}
        self.call_arrays(slow)
        self.run = self._call()

    def call_arrays(self, arrays_only: Fun) -> None:
        """Choose what gets calls of arrays alone from now on."""
        self._arrays_only = arrays_only
        array = arrays.Array
        self._ones[array] = arrays_only, (_as_it_is,)
        self._pairs[array, array] = arrays_only, (_as_it_is, _as_it_is)

    def clear(self) -> None:
        """Forget all signatures."""
        self._ones.clear()
        self._pairs.clear()
        self._flats.clear()
        self._trees.clear()

    def _call(self) -> Fun:
        """The call: what is no container takes a short way, one or two the shortest, without a guard's frame."""
        of_one, of_two, of_more = self._ones.get, self._pairs.get, self._flats.get
        slow = self._slow

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                try:
                    if kwargs or len(args) > 2:
                        found = of_more((*map(type, args), *kwargs, *map(type, kwargs.values())))
                        if found is not None:
                            (quickly, rules), names = found
                            leaves = (*args, *map(kwargs.__getitem__, names))
                            return quickly(*map(operator.call, rules, leaves))
                    elif len(args) == 1:
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
                trace.pass_out(error)
                raise

        return run

    def _with_trees(self, args: Any, kwargs: Any) -> Any:
        static: tuple[util.Exact, ...] = ()
        given = self._static.changed(exactly, args, kwargs) if self._static else (args, kwargs)
        try:
            leaves, tree = TREE.flatten(given)
        except ValueError:  # dict keys without an order
            raise _Unfit from None
        if self._static:
            static = tuple([x for x in leaves if type(x) is util.Exact])
        kinds = tuple(map(type, leaves))
        if _NO_OTHERS.issuperset(kinds):
            return self._arrays_only(*args, **kwargs)
        way = self._trees.get((tree, kinds, static))
        if way is None:
            way = self._trees[tree, kinds, static] = self._way(tree, kinds, static)
            names = sorted(kwargs)
            if not static and kinds == tuple(map(type, [*args, *map(kwargs.get, names)])):
                if not kwargs:
                    self._ones |= {kinds[0]: way} if len(kinds) == 1 else {}
                    self._pairs |= {(kinds[0], kinds[1]): way} if len(kinds) == 2 else {}
                of_names = map(type, kwargs.values())
                self._flats[(*map(type, args), *kwargs, *of_names)] = way, names
        quickly, rules = way
        if static:
            leaves = [x for x in leaves if type(x) is not util.Exact]
        return quickly(*map(operator.call, rules, leaves))

    def _way(self, tree: TreeDef, kinds: Sequence[type], static: Sequence[util.Exact]) -> _Way:
        dynamic = [kind for kind in kinds if kind is not util.Exact]
        if not all(kind in _RULES for kind in dynamic):
            raise _Unfit

        def miss(*leaves: Any) -> Any:
            # A leaf as it was before its rule, as far as its type goes.
            opened = [arrays.of_buffer(x) if type(x) is client.BUFFER_CLASS else x for x in leaves]
            given, fixed = iter(opened), iter(static)
            whole = [next(fixed) if kind is util.Exact else next(given) for kind in kinds]
            args, kwargs = tree.unflatten(whole)
            result, fast = self._miss(*args, **kwargs)[:2]
            wide = not _PYTHON.isdisjoint(kinds) and reads_numbers_wide()
            return result, None if wide else fast

        run = fast_function(self._name, lambda *leaves: miss(*leaves)[0], miss)
        return run, tuple([_RULES[kind] for kind in dynamic])


_Way = tuple[Fun, tuple[Rule, ...]]

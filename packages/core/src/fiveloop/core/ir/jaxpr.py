"""The IR: variables, equations and closed jaxprs; equations list their effects, which name operands by position."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache, wraps
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from fiveloop.core.dataclass import dataclass, fields, is_dataclass, replace
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.source import Source

Effects = frozenset["Effect"]
Typing: TypeAlias = tuple[list[Aval], Effects]
"""What `abstract_eval` gives of an equation: the types of its results, and its effects."""
NO_EFFECTS: Effects = frozenset()


@dataclass(frozen=True)
class Effect:
    """The base of all effect types; facts that core must know of an effect are class attributes.

    `droppable`: an equation whose results are unused and whose effects are all droppable may go.
    `ordered`: equations with this effect keep their order. `in_loops`: allowed in the body of a loop.
    `recomputable`: an equation with this effect may run again in a recomputation. `may_fail`: a program with this
    effect may stop half-way, and then leaves its arguments as they were. `mutates`: it changes the operand that it is
    on. `returns`: a pass gives a program with this effect one more result, which `at_return` takes when the program has
    run.
    `each_lane`: on a value that all lanes of a batch share, it happens once for each lane, even if all do the same.
    `lanes_differ`: its results then differ between lanes.

    A subclass is a frozen dataclass, so that effects can be compared.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Logged(Effect):
    ...     level: int
    >>> Logged(1) == Logged(1), Logged.droppable, Logged.in_loops
    (True, False, True)
    """

    droppable: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    in_loops: ClassVar[bool] = True
    recomputable: ClassVar[bool] = False
    may_fail: ClassVar[bool] = False
    mutates: ClassVar[bool] = False
    each_lane: ClassVar[bool] = False
    lanes_differ: ClassVar[bool] = False
    returns: ClassVar[bool] = False

    @classmethod
    def at_return(cls, contents: Any) -> None:
        """Take the result that a program has for effects of this type."""


@dataclass(frozen=True)
class PositionalEffect(Effect):
    """An effect on one operand: a position in `Eqn.invars`, or in `Jaxpr.invars`.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> Fill(0).at(2).position
    2
    """

    position: int

    def at(self, position: int) -> Self:
        """The same effect on another position."""
        return replace(self, position=position)


def map_positions(effects: Iterable[Effect], place: Callable[[int], int | None]) -> Effects:
    """Move positional effects by `place`; those for which it answers None are dropped, all others kept.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> moved = map_positions([Fill(0), Fill(1)], lambda k: None if k == 0 else k + 3)
    >>> [e.position for e in moved]
    [4]
    """
    out: set[Effect] = set()
    for effect in effects:
        if not isinstance(effect, PositionalEffect):
            out.add(effect)
        elif (position := place(effect.position)) is not None:
            out.add(effect.at(position))
    return frozenset(out)


def effects_text(effects: Iterable[Effect]) -> str:
    """Effects for a message, in an order that is the same in every process.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> effects_text(frozenset([Fill(2), Fill(0)]))
    '{Fill(position=0), Fill(position=2)}'
    """
    return f"{{{', '.join(sorted(map(repr, effects)))}}}"


def effects_at(effects: Iterable[Effect], position: int) -> Effects:
    """The effects on one position.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> effects = frozenset([Fill(0), Fill(2)])
    >>> effects_at(effects, 2), effects_at(effects, 1)
    (frozenset({Fill(position=2)}), frozenset())
    """
    return frozenset(
        e for e in effects if isinstance(e, PositionalEffect) and e.position == position
    )


def mutated_positions(effects: Iterable[Effect]) -> frozenset[int]:
    """The positions that some effect changes.

    >>> class Fill(PositionalEffect):
    ...     mutates = True
    >>> class Look(PositionalEffect):
    ...     pass
    >>> mutated_positions([Fill(0), Look(1), Fill(2)])
    frozenset({0, 2})
    """
    return frozenset(e.position for e in effects if isinstance(e, PositionalEffect) and e.mutates)


def returning(effects: Iterable[Effect]) -> list[type[Effect]]:
    """The types of effects for which a program has a result besides its own, in the order of those results."""
    found = {type(e) for e in effects if e.returns}
    return sorted(found, key=lambda kind: (kind.__name__, kind.__module__))


P = TypeVar("P")
R = TypeVar("R")
Args = ParamSpec("Args")
Key = Callable[..., tuple[Any, ...]]
_MEMO_LIMIT = 64
PRINTERS: dict[type, Callable[[Any], str]] = {}
"""How a jaxpr and an equation print, filled in by `pretty`, which stands above this file."""


class Constant(Protocol):
    """A concrete value: one of fiveloop's arrays or scalars."""

    @property
    def aval(self) -> Aval: ...


class Var:
    """A variable of a jaxpr, compared by identity; `hint` is its name for people, if it has one."""

    __slots__ = ("aval", "hint")

    def __init__(self, aval: Aval, hint: str = "") -> None:
        self.aval = aval
        self.hint = hint

    def __repr__(self) -> str:
        return f"Var({self.aval})"


class Literal:
    """A concrete value used as an operand: a scalar, printed as a number, or an array."""

    __slots__ = ("aval", "value")

    def __init__(self, value: Constant) -> None:
        self.value = value
        self.aval = value.aval

    def __repr__(self) -> str:
        return f"Literal({self.value})"


Atom = Var | Literal
Vars: TypeAlias = Sequence[Var]
Atoms: TypeAlias = Sequence[Atom]


class Label:
    """A param that is compared by identity: a program depends only on which of its labels are the same.

    >>> here = Label()
    >>> here == here, here == Label()
    (True, False)
    """

    __slots__ = ()


class NoParams:
    """The params of a primitive that has none: `NO_PARAMS`, compared by identity, which costs no call of Python."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NO_PARAMS"

    def __repr__(self) -> str:
        return "NoParams()"


NO_PARAMS = NoParams()


class Primitive(Generic[P]):
    """The name of an operation; everything else known of it is in the tables of `rules`.

    `creates_state` marks a primitive whose result will hold values that come later (a new Ref), so that a
    derivative or a batch axis must be prepared for even if none enters. `holds_functions` marks one whose params may
    hold functions of the user's, which close over traced values that are not operands: `params.under(trace)` are the
    params with which a trace hands over to its parent. Primitives are compared by identity.

    >>> clip_p = Primitive("clip")
    >>> clip_p, clip_p == Primitive("clip")
    (clip, False)
    """

    __slots__ = ("creates_state", "holds_functions", "name")

    def __init__(
        self, name: str, *, creates_state: bool = False, holds_functions: bool = False
    ) -> None:
        self.name = name
        self.creates_state = creates_state
        self.holds_functions = holds_functions

    def __repr__(self) -> str:
        return self.name


class Eqn:
    """One equation: `outvars = primitive[params] invars`, with the effects it has on its operands."""

    __slots__ = ("effects", "invars", "outvars", "params", "primitive", "source")

    def __init__(
        self,
        primitive: Primitive[Any],
        invars: Sequence[Atom],
        outvars: Sequence[Var],
        params: Any,
        effects: Effects = NO_EFFECTS,
        source: Source | None = None,
    ) -> None:
        self.primitive = primitive
        self.invars = tuple(invars)
        self.outvars = tuple(outvars)
        self.params = params
        self.effects = effects
        self.source = source

    def __repr__(self) -> str:
        return PRINTERS[Eqn](self)

    def replace(self, **changes: Any) -> Eqn:
        """A copy with some fields changed."""
        kept = {
            "primitive": self.primitive,
            "invars": self.invars,
            "outvars": self.outvars,
            "params": self.params,
            "effects": self.effects,
            "source": self.source,
        }
        return Eqn(**{**kept, **changes})


Eqns: TypeAlias = Sequence[Eqn]


class Jaxpr:
    """A closed, typed program: `invars` to `outvars` by `eqns`, with effects that name positions of `invars`.

    Immutable and hashed by identity. Results of transforms are remembered on the object itself, in a
    bounded table, and die with it.
    """

    __slots__ = ("__weakref__", "_memo", "effects", "eqns", "invars", "name", "outvars")

    def __init__(
        self,
        invars: Vars,
        eqns: Eqns,
        outvars: Atoms,
        name: str = "",
        *,
        effects: Effects | None = None,
    ) -> None:
        self.invars = tuple(invars)
        self.eqns = tuple(eqns)
        self.outvars = tuple(outvars)
        self.name = name
        self.effects = effects_of(self.invars, self.eqns) if effects is None else effects
        self._memo: OrderedDict[Hashable, Any] = OrderedDict()

    def __repr__(self) -> str:
        return PRINTERS[Jaxpr](self)

    @property
    def in_avals(self) -> list[Aval]:
        return [v.aval for v in self.invars]

    @property
    def hints(self) -> list[str]:
        """The names of the inputs; empty where an input has none."""
        return [v.hint for v in self.invars]

    @property
    def out_avals(self) -> list[Aval]:
        return [v.aval for v in self.outvars]

    @property
    def consts(self) -> list[Constant]:
        """The concrete arrays in this jaxpr and in the jaxprs of its params, each once; scalars excepted."""
        found: dict[int, Constant] = {}
        for atom in all_atoms(self):
            if isinstance(atom, Literal) and not is_scalar(atom):
                found.setdefault(id(atom.value), atom.value)
        return list(found.values())

    def remember(self, key: Hashable, make: Callable[[], R]) -> R:
        """The result of a transform of this jaxpr, made once per key."""
        if key in self._memo:
            self._memo.move_to_end(key)
            found: R = self._memo[key]
            return found
        made = self._memo[key] = make()
        while len(self._memo) > _MEMO_LIMIT:
            self._memo.popitem(last=False)
        return made

    def remembers(self, key: Hashable) -> bool:
        """Whether the result of a transform is remembered."""
        return key in self._memo

    def replace(self, **changes: Any) -> Jaxpr:
        """A copy with some fields changed; its effects are computed from its equations."""
        kept = {name: getattr(self, name) for name in ("invars", "eqns", "outvars", "name")}
        return Jaxpr(**{**kept, **changes})


def once_per(key: Key | None = None) -> Callable[[Callable[Args, R]], Callable[Args, R]]:
    """A function that runs once for each key of its arguments: a jaxpr, which remembers the results, and the rest.

    Without `key` the arguments are the key.
    """

    def decorate(fun: Callable[Args, R]) -> Callable[Args, R]:
        @wraps(fun)
        def once(*args: Args.args, **kwargs: Args.kwargs) -> R:
            named: tuple[Any, ...] = (*args, *kwargs.items()) if kwargs else args
            parts = key(*args, **kwargs) if key else named
            found: R = parts[0].remember((fun, *parts[1:]), lambda: fun(*args, **kwargs))
            return found

        return once

    return decorate


once_per_jaxpr = once_per()
"""A function of a jaxpr, and of values to be compared, that runs once for each of them."""


def has_effect(holder: Jaxpr | Eqn, kind: type[Effect]) -> bool:
    """Whether there is an effect of a type."""
    return any(isinstance(e, kind) for e in holder.effects)


def is_scalar(literal: Literal) -> bool:
    """Whether a literal is a host scalar, which is written out rather than passed."""
    value: Any = literal.value
    # The class is asked, for an array that is asked for what it lacks makes a message.
    return hasattr(type(value), "host") and isinstance(value.host, np.ndarray)


def key_of(literal: Literal) -> Hashable:
    """Equal for literals that are the same number of the same type, or the same array."""
    value: Any = literal.value
    return (literal.aval, value.host.tobytes()) if is_scalar(literal) else id(value)


def effects_of(invars: Vars, eqns: Iterable[Eqn]) -> Effects:
    """The effects of equations, as positions of the binders; those on inner variables stay inside."""
    place: dict[Atom, int] = {v: i for i, v in enumerate(invars)}
    out: set[Any] = set()
    for eqn in eqns:
        if eqn.effects:
            out |= map_positions(eqn.effects, lambda k, eqn=eqn: place.get(eqn.invars[k]))  # type: ignore[misc]
    return frozenset(out)


@cache
def _names_in(kind: Any) -> tuple[str, ...]:
    """The names of what params of a class hold."""
    return tuple([f.name for f in fields(kind)]) if is_dataclass(kind) else ()


_PLAIN = re.compile(
    r"(int|bool|str|float|bytes|None|Indexer|(ir\.)?Shape|(ir\.)?Dim|Axes|np\.dtype\[Any\]|tuple\[|\.\.\.|[], |])*"
)


@cache
def _names_of_holders(kind: Any) -> tuple[str, ...]:
    """The names of what may hold a jaxpr in params of a class: all but numbers, strings and sizes, by their
    annotations.
    """
    if not is_dataclass(kind):
        return ()
    types = {f.name: getattr(f.type, "__name__", str(f.type)) for f in fields(kind)}
    return tuple([name for name, text in types.items() if not _PLAIN.fullmatch(text)])


def values_in(params: Any) -> list[Any]:
    """What params hold, directly or in tuples."""
    kind: Any = type(params)
    return _values(params, _names_in(kind))


def _values(params: Any, names: Iterable[str]) -> list[Any]:
    found: list[Any] = []
    for name in names:
        _add_values(getattr(params, name), found)
    return found


def _add_values(value: Any, found: list[Any]) -> None:
    if type(value) is tuple:
        for x in value:
            _add_values(x, found)
    else:
        found.append(value)


def with_values(params: P, change: Callable[[Any], Any]) -> P:
    """Params with `change` of what they hold, directly or in tuples; themselves if nothing is another."""
    kind: Any = type(params)
    return _with(params, _names_in(kind), change)


def _with(params: P, names: Iterable[str], change: Callable[[Any], Any]) -> P:
    old = {name: getattr(params, name) for name in names}
    new = {name: _changed(value, change) for name, value in old.items()}
    changed = {name: value for name, value in new.items() if value is not old[name]}
    return replace(params, **changed) if changed else params  # type: ignore[type-var]  # it is a dataclass


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if type(value) is not tuple:
        return change(value)
    new = tuple([_changed(x, change) for x in value])
    return new if any(a is not b for a, b in zip(new, value, strict=True)) else value


def jaxprs_in(params: Any) -> list[Jaxpr]:
    """The jaxprs that params hold, directly or in tuples.

    >>> params = ClosedCallParams(make_jaxpr(lambda x: x * x)(1.0), "square")
    >>> print(*jaxprs_in(params))
    { lambda a:f32*[] ; let
        b:f32*[] = mul a a
      in (b,) }
    """
    kind: Any = type(params)
    names = _names_of_holders(kind)
    return [x for x in _values(params, names) if isinstance(x, Jaxpr)] if names else []


def with_jaxprs(params: P, fun: Callable[[Jaxpr], Jaxpr]) -> P:
    """Params with `fun` of each jaxpr that they hold, directly or in tuples, in its place.

    >>> params = ClosedCallParams(make_jaxpr(lambda x: (x, x * x))(1.0), "square")
    >>> with_jaxprs(params, lambda jaxpr: dce(jaxpr, (True, False))[0])
    ClosedCallParams(jaxpr={ lambda a:f32*[] ; let in (a,) }, name='square', inline=False, one_kernel=False)
    """
    kind: Any = type(params)
    names = _names_of_holders(kind)
    return (
        _with(params, names, lambda x: fun(x) if isinstance(x, Jaxpr) else x) if names else params
    )


def all_atoms(jaxpr: Jaxpr) -> Iterable[Atom]:
    """Every atom that a jaxpr and those nested in it use as an operand or a result."""
    for eqn in jaxpr.eqns:
        yield from eqn.invars
        for inner in jaxprs_in(eqn.params):
            yield from all_atoms(inner)
    yield from jaxpr.outvars


def used_vars(atoms: Iterable[Atom]) -> set[Var]:
    """The variables among atoms, to ask what is among them; their order is not the program's."""
    return {a for a in atoms if isinstance(a, Var)}


def vars_in_order(atoms: Iterable[Atom]) -> list[Var]:
    """The variables among atoms, each once, in the order of the atoms."""
    return list(dict.fromkeys([a for a in atoms if isinstance(a, Var)]))

"""Dataclasses that are quick to declare: a method is generated when it is first used.

The standard library compiles half a dozen functions for each class, and a program uses few of the classes of a
library. `dataclass` has the same meaning here, without features that the library does not use: `order`,
`unsafe_hash`, `InitVar`, and fields with `init=False`. To type checkers, to the functions of `dataclasses`, and to
dataclasses that inherit from them, these are dataclasses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import is_dataclass as is_dataclass
from dataclasses import replace as replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

Method = Callable[..., Any]
Fields = dict[str, "dataclasses.Field[Any]"]
_set_attribute = object.__setattr__
# Two private names, which have been there since Python 3.7: what `fields` asks for, and what signatures show.
_FIELD: Any = dataclasses._FIELD  # type: ignore[attr-defined]
_FACTORY: Any = dataclasses._HAS_DEFAULT_FACTORY  # type: ignore[attr-defined]


class _Later:
    """A method of a class, written when it is first asked for, of the class or of an instance."""

    __slots__ = ("cls", "write")

    def __init__(self, cls: type, write: Callable[[Any], Method]) -> None:
        self.cls = cls
        self.write = write

    def __get__(self, instance: object, owner: type | None = None) -> Method:
        method = self.write(self.cls)
        setattr(self.cls, method.__name__, method)
        bound: Method = method if instance is None else method.__get__(instance, owner)
        return bound


def _own_fields(cls: type) -> Fields:
    """The fields that the class itself declares."""
    own: Fields = {}
    for name, kind in cls.__annotations__.items():
        if str(kind).startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = cls.__dict__.get(name, MISSING)
        f: Any = given if isinstance(given, dataclasses.Field) else field(default=given)
        f.name, f.type, f.kw_only, f._field_type = name, kind, f.kw_only is True, _FIELD
        own[name] = f
        if f is given and f.default is MISSING:
            delattr(cls, name)
        elif f is given:
            setattr(cls, name, f.default)
    return own


def _slotted(cls: type, own: Fields) -> type:
    """The class again with a slot for each of its own fields, whose defaults are left to `__init__`."""
    left_out = {*own, "__dict__", "__weakref__"}
    members = {name: x for name, x in cls.__dict__.items() if name not in left_out}
    again = type(cls)(cls.__name__, cls.__bases__, members | {"__slots__": tuple(own)})
    again.__qualname__ = cls.__qualname__
    return again


def _written(cls: type, head: str, body: list[str], known: dict[str, Any]) -> Method:
    """A method with this head and these lines, which may use what is known by name."""
    name = head.partition("(")[0]
    exec(f"def {head}:\n " + "\n ".join(body or ["pass"]), known)
    method: Method = known[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return method


def _init(cls: Any) -> Method:
    known: dict[str, Any] = {"_set": _set_attribute, "_FACTORY": _FACTORY}
    params: dict[Any, list[str]] = {False: ["self"], True: []}
    body = []
    for f in fields(cls):
        default, value = "", f.name
        if f.default is not MISSING:
            default = f"=_default_{f.name}"
            known[default[1:]] = f.default
        elif f.default_factory is not MISSING:
            default, value = "=_FACTORY", f"_make_{f.name}() if {f.name} is _FACTORY else {f.name}"
            known[f"_make_{f.name}"] = f.default_factory
        params[f.kw_only].append(f.name + default)
        body.append(
            f"_set(self, {f.name!r}, {value})" if is_frozen(cls) else f"self.{f.name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    star = ["*"] if params[True] else []
    head = f"__init__({', '.join([*params[False], *star, *params[True]])})"
    method = _written(cls, head, body, known)
    method.__annotations__ = {**{f.name: f.type for f in fields(cls)}, "return": None}
    return method


def _eq(cls: Any) -> Method:
    one, other = [
        _values(of, [f.name for f in fields(cls) if f.compare]) for of in ("self", "other")
    ]
    result = f"return {one} == {other} if other.__class__ is self.__class__ else NotImplemented"
    return _written(cls, "__eq__(self, other)", [result], {})


def _hash(cls: Any) -> Method:
    names = [f.name for f in fields(cls) if (f.compare if f.hash is None else f.hash)]
    return _written(cls, "__hash__(self)", [f"return hash({_values('self', names)})"], {})


def _values(of: str, names: list[str]) -> str:
    return "(" + "".join([f"{of}.{name}, " for name in names]) + ")"


def _repr(self: Any) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, what: str) -> None:
    """Refuse to change a field, and anything of the class itself; a class that inherits from it may have more."""
    if name in self.__dataclass_fields__ or "__dataclass_params__" in type(self).__dict__:
        raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    _refuse(self, name, "assign to")
    _set_attribute(self, name, value)


def _refuse_deletion(self: Any, name: str) -> None:
    _refuse(self, name, "delete")
    object.__delattr__(self, name)


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        _set_attribute(self, f.name, value)


_FROZEN = {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
_FROZEN_SLOTS = {"__getstate__": _state, "__setstate__": _set_state}


def is_frozen(cls: Any) -> bool:
    """Whether instances of a dataclass, also one of the standard library's, stay as they are made.

    >>> is_frozen(dataclasses.make_dataclass("Point", ["x", "y"]))
    False
    """
    return bool(cls.__dataclass_params__.frozen)


def _declared(cls: type, slots: bool, params: SimpleNamespace) -> type:
    """The class as a dataclass; methods that it has written out stay."""
    each: Fields = {}
    for base in reversed(cls.__mro__[1:]):
        each |= base.__dict__.get("__dataclass_fields__", {})
    own = _own_fields(cls)
    cls = _slotted(cls, own) if slots else cls
    methods: dict[str, Any] = dict(_FROZEN) if params.frozen else {}
    if params.frozen and slots:
        methods |= _FROZEN_SLOTS
    if params.init:
        methods |= {"__init__": _Later(cls, _init)}
    if params.repr:
        methods |= {"__repr__": _repr}
    if params.eq:
        hashes = _Later(cls, _hash) if params.frozen else None
        methods |= {"__eq__": _Later(cls, _eq), "__hash__": hashes}
    each |= own
    facts = {
        "__dataclass_fields__": each,
        "__dataclass_params__": params,
        "__match_args__": tuple([f.name for f in each.values() if not f.kw_only]),
        "__replace__": replace,
    }
    for name, member in (methods | facts).items():
        # A class with an `__eq__` of its own has got None for `__hash__`.
        if name in facts or cls.__dict__.get(name) is None:
            setattr(cls, name, member)
    return cls


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        repr: bool = True,
        init: bool = True,
    ) -> Any:
        """The class as a dataclass, or a decorator that makes dataclasses.

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1) == Point(1, 0), {replace(Point(1), y=2)}
        (Point(x=1, y=0), True, {Point(x=1, y=2)})
        """
        params = SimpleNamespace(
            init=init, repr=repr, eq=eq, order=False, unsafe_hash=False, frozen=frozen
        )
        if cls is None:
            return lambda cls: _declared(cls, slots, params)
        return _declared(cls, slots, params)

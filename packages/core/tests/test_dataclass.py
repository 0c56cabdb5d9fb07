"""The library's dataclasses do what those of the standard library do, and write their methods when these are needed."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from fiveloop.core import dataclass as own
from fiveloop.core.dataclass import dataclass, field, fields, is_frozen, replace

T = TypeVar("T")
OPTIONS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"eq": False},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "repr": False},
]


def declared(decorate: Callable[..., Any], options: dict[str, bool]) -> Any:
    """The same class by this decorator."""

    @decorate(**options)
    class Point(Generic[T]):
        """A point with all kinds of fields."""

        x: int
        y: Any = (1, 2)
        seen: list[int] = field(default_factory=list, compare=False)
        hidden: int = field(default=7, repr=False)
        name: str = field(default="", kw_only=True)
        unit: ClassVar[str] = "m"

        @property
        def double(self) -> int:
            return 2 * self.x

    return Point


@pytest.fixture(params=OPTIONS, ids=str)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A class by our decorator, and by that of the standard library."""
    return declared(dataclass, request.param), declared(dataclasses.dataclass, request.param)


def outcome(run: Callable[[], Any]) -> Any:
    """What a call gives, or the type and text of its error."""
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


CASES: list[Callable[[Any], Any]] = [
    lambda cls: repr(cls(1, name="a")).partition(" at 0x")[0],
    lambda cls: (cls(1).y, cls(1).seen, cls(1).hidden, cls(1, 2, [3], 4, name="b").name),
    lambda cls: cls(1).seen is cls(1).seen,
    lambda cls: (cls.unit, cls(3).double),
    lambda cls: (cls(1) == cls(1), cls(1) != cls(1), cls(1) == cls(2), cls(1) == 1),
    lambda cls: (cls(1, seen=[1]) == cls(1), cls(1, name="a") == cls(1)),
    lambda cls: isinstance(hash(cls(1)), int),
    lambda cls: len({cls(1), cls(1), cls(2)}),
    lambda cls: cls(),
    lambda cls: cls(1, 2, 3, 4, 5),
    lambda cls: cls(1, other=2),
    lambda cls: setattr(cls(1), "x", 2),
    lambda cls: delattr(cls(1), "x"),
    lambda cls: [(f.name, f.type, f.compare, f.kw_only) for f in dataclasses.fields(cls)],
    lambda cls: dataclasses.replace(cls(1, name="a"), x=5).name,
    lambda cls: dataclasses.asdict(cls(1, [2])),
    lambda cls: dataclasses.is_dataclass(cls),
    lambda cls: (cls.__match_args__, cls.__qualname__, cls.__doc__, cls.__module__),
    lambda cls: str(inspect.signature(cls)),
    lambda cls: cls.__dict__.get("__slots__"),
    lambda cls: copy.copy(cls(1, [2])).y,
    lambda cls: copy.deepcopy(cls(1, [2])).y,
    lambda cls: is_frozen(cls),
]


@pytest.mark.parametrize("case", CASES)
def test_it_is_as_in_the_standard_library(
    both: tuple[Any, Any], case: Callable[[Any], Any]
) -> None:
    ours, theirs = both
    assert outcome(lambda: case(ours)) == outcome(lambda: case(theirs))


@dataclass(frozen=True)
class Base:
    a: int
    b: int = 2

    @cached_property
    def total(self) -> int:
        """A value that is computed once."""
        return self.a + self.b


@dataclass(frozen=True)
class Derived(Base):
    c: int = 3


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: int = 2


class Plain(Base):
    """A class that inherits without being declared."""

    color: str


@dataclasses.dataclass(frozen=True)
class Theirs(Base):
    d: int = 4


def test_fields_are_inherited_by_dataclasses_of_both_kinds() -> None:
    assert repr(Derived(1)) == "Derived(a=1, b=2, c=3)"
    assert repr(Theirs(1)) == "Theirs(a=1, b=2, d=4)"
    assert [f.name for f in fields(Theirs)] == ["a", "b", "d"]
    assert (Derived(1) == Base(1), Plain(1) == Plain(1), Plain(1) == Base(1)) == (
        False,
        True,
        False,
    )
    assert Derived(1).total == 3
    assert replace(Theirs(1), a=2) == Theirs(2)


def test_a_class_that_inherits_may_have_attributes_of_its_own() -> None:
    plain = Plain(1)
    plain.color = "red"
    assert plain.color == "red"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        plain.a = 2  # type: ignore[misc]  # what is refused
    with pytest.raises(dataclasses.FrozenInstanceError, match="'color'"):
        Base(1).color = "red"  # type: ignore[attr-defined]  # what is refused


@pytest.mark.parametrize("x", [Base(1), Derived(1, c=5), Slotted(1), Theirs(1)], ids=str)
def test_instances_are_pickled(x: Any) -> None:
    again = pickle.loads(pickle.dumps(x))
    assert again == x
    assert hash(again) == hash(x)


def test_patterns_match_fields_by_place() -> None:
    match Derived(1, 5):
        case Derived(a, b, c=3):
            assert (a, b) == (1, 5)
        case _:
            raise AssertionError


def test_methods_that_a_class_writes_stay() -> None:
    @dataclass(frozen=True)
    class Odd:
        x: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd) and (self.x - other.x) % 2 == 0

        def __hash__(self) -> int:
            return self.x % 2

        def __repr__(self) -> str:
            return "odd"

    assert Odd(1) == Odd(3)
    assert hash(Odd(3)) == 1
    assert repr(Odd(1)) == "odd"


def test_what_follows_the_fields_is_run() -> None:
    @dataclass(slots=True)
    class Counted:
        x: int

        def __post_init__(self) -> None:
            self.x += 1

    assert Counted(1) == Counted(1)
    assert Counted(1).x == 2


def test_methods_are_written_when_they_are_first_asked_for() -> None:
    cls = declared(dataclass, {"frozen": True})
    later = own._Later
    names = ("__init__", "__eq__", "__hash__")
    assert all(isinstance(cls.__dict__[name], later) for name in names)
    one = cls(1)
    assert [isinstance(cls.__dict__[name], later) for name in names] == [False, True, True]
    assert (one == cls(1), hash(one) == hash(cls(1))) == (True, True)
    assert not any(isinstance(cls.__dict__[name], later) for name in names)

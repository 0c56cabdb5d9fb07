"""The leak checker: finds traced values that are still referenced after their function has returned."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

from fiveloop.core import errors, ir
from fiveloop.core.trace import tracer
from fiveloop.core.util import R

_DEPTH = 6
"""How many containers are looked through for a name."""
_WAYS = 40
"""How far a holder is followed before it counts as one that stays."""


@contextmanager
def noting_ended() -> Iterator[None]:
    """Within the block, traces that end are noted, so that `leak_checked` engines look for leaked values."""
    before, tracer.current.watch = tracer.current.watch, _Watch()
    try:
        yield
    finally:
        tracer.current.watch = before


class _Watch:
    """Looks at the traces that end while an engine runs."""

    def __init__(self) -> None:
        self.ended: list[weakref.ref[tracer.Trace]] = []

    def run(self, engine: Callable[[], R]) -> R:
        count = len(self.ended)
        try:
            out = engine()
        except BaseException:
            # What the exception's frames hold is no leak.
            del self.ended[count:]
            raise
        fresh = self.ended[count:]
        del self.ended[count:]
        _check(fresh)
        return out


def _check(ended: list[weakref.ref[tracer.Trace]]) -> None:
    # Most of those alive only wait for a collection, which is quick for young objects.
    for generation in (1, 2):
        if not _alive(ended):
            return
        gc.collect(generation)
    traces = _alive(ended)
    found = gc.get_referrers(*traces) if traces else []
    held = [x for x in found if isinstance(x, tracer.Tracer) and x.owner in traces]
    del found, traces
    for x in held:
        if not _kept_on_purpose(x, held):
            raise _leak(x)


def _alive(refs: list[weakref.ref[tracer.Trace]]) -> list[tracer.Trace]:
    return [trace for ref in refs if (trace := ref()) is not None]


def _kept_on_purpose(x: object, known: list[Any]) -> bool:
    """Whether every way by which something is held leads to an object whose class says `keeps_traced`.

    A rule keeps its functions, and with them the values that they close over: when it runs, other values replace these.
    An object without visible holders is held by a running function. A search for holders goes over all objects of the
    process, so it is made once for all objects equally far from `x`.
    """
    seen = {id(known), id(x)}
    level = [x]
    for _ in range(_WAYS):
        holders = [r for r in gc.get_referrers(*level) if r is not level and r is not known]
        visible = {id(held) for held in gc.get_referents(*holders)}
        if any(id(each) not in visible for each in level):
            return False
        if any(isinstance(r, (FrameType, ModuleType)) for r in holders):
            return False
        unseen = (r for r in holders if id(r) not in seen)
        level = [r for r in unseen if not getattr(type(r), "keeps_traced", False)]
        if not level:
            return True
        seen.update(map(id, level))
        # This list is no holder.
        del holders
    return False


def _leak(held: tracer.Tracer) -> errors.LeakError:
    holder = _holder(held)
    return errors.LeakError(
        f"a traced value of type {held.aval}{tracer.where_made(held)} in {ir.function_source(held.owner.fun)} is still "
        f"held after that function has returned, by {holder}; return it from the function instead of storing it"
        f"{errors.at_source(tracer.current_source())}"
    )


def _holder(held: object) -> str:
    """What holds a tracer, as a user would name it."""
    seen: set[int] = set()
    level: list[tuple[object, str]] = [(held, "")]
    for _ in range(_DEPTH):
        outer: list[tuple[object, str]] = []
        for x, within in level:
            seen.add(id(x))
            name = _in_frames(x)
            if name is not None:
                return within + name
            referrers = gc.get_referrers(x)
            for referrer in referrers:
                if id(referrer) in seen or referrer is level or referrer is outer:
                    continue
                found = _named(referrer, x)
                if found is not None:
                    if _kept_on_purpose(referrer, referrers):
                        continue
                    return within + found
                step = _container(referrer)
                if step is not None:
                    outer.append((referrer, within + step))
        level = outer
    return "something that has no name"


def _in_frames(x: object) -> str | None:
    """The variable of a running function of the user's that holds something."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not ir.is_internal(frame.f_code) and frame.f_code.co_name != "<module>":
            for name, value in frame.f_locals.items():
                if value is x:
                    return f"the variable `{name}` of {frame.f_code.co_name}"
        frame = frame.f_back
    return None


def _named(holder: object, x: object) -> str | None:
    """The name by which something is held directly, if what holds it gives one."""
    if isinstance(holder, dict):
        name = next((key for key, value in list(holder.items()) if value is x), None)
        module = sys.modules.get(holder.get("__name__", ""))
        if isinstance(module, ModuleType) and module.__dict__ is holder:
            return f"the global `{name}` of {module.__name__}"
        owners = [o for o in gc.get_referrers(holder) if getattr(o, "__dict__", None) is holder]
        return _attribute(name, owners[0]) if owners else None
    if isinstance(holder, CellType):
        return _closure(holder)
    if isinstance(holder, GeneratorType) and holder.gi_frame is not None:
        name = next((n for n, v in holder.gi_frame.f_locals.items() if v is x), None)
        return f"the variable `{name}` of the generator {holder.__name__}"
    if isinstance(holder, FunctionType):
        return f"the function {ir.function_source(holder)}"
    slots = getattr(holder, "__dict__", None)
    attributes = slots.items() if isinstance(slots, dict) else _slots_of(holder)
    for name, value in attributes:
        if value is x and not isinstance(holder, (ModuleType, tracer.Tracer)):
            return _attribute(name, holder)
    return None


def _attribute(name: object, holder: object) -> str:
    return f"the attribute `{name}` of an object of type {type(holder).__name__}"


def _slots_of(holder: object) -> Iterator[tuple[str, Any]]:
    for cls in type(holder).__mro__:
        for name in cls.__dict__.get("__slots__", ()):
            if hasattr(holder, name):
                yield name, getattr(holder, name)


def _closure(cell: CellType) -> str | None:
    for function in gc.get_referrers(cell):
        closure = function if isinstance(function, tuple) else None
        owners = gc.get_referrers(closure) if closure is not None else [function]
        for owner in owners:
            if isinstance(owner, FunctionType) and owner.__closure__ is not None:
                for name, own in zip(owner.__code__.co_freevars, owner.__closure__, strict=True):
                    if own is cell:
                        return f"the variable `{name}` that {ir.function_source(owner)} closes over"
    return None


def _container(holder: object) -> str | None:
    """How to speak of what lies in a container that has no name itself."""
    if isinstance(holder, (list, tuple, dict, set)):
        return f"a {type(holder).__name__} in "
    if isinstance(holder, tracer.Tracer):
        return "another traced value in "
    return None

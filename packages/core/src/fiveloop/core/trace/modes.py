"""The context of a trace: modes of execution and settings of `with` blocks, which are part of every cache key."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, util
from fiveloop.core.arrays import Value
from fiveloop.core.backend.client import AFTER_FORK
from fiveloop.core.trace import leaks, replay, tracer
from fiveloop.core.trace.stage import StageTrace
from fiveloop.core.util import P, R


class Listener(Protocol):
    """What has a fast way that knows no modes, and must leave it while there are some."""

    def modes_changed(self) -> None:
        """The first mode has come, or the last one has gone."""


class Special:
    """How many modes are on, in all threads, and whether arrays may be donated: mostly nothing else is asked."""

    __slots__ = ("_listeners", "_lock", "count", "donates")

    def __init__(self) -> None:
        self.count = 0
        self.donates = False
        self._listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._lock = util.free_after_fork(threading.Lock())

    def listen(self, listener: Listener) -> None:
        """Tell `listener` now, and whenever the first mode comes or the last one goes."""
        with self._lock:
            self._listeners.add(listener)
            listener.modes_changed()

    def change(self, difference: int) -> None:
        """Count a mode that comes or goes."""
        with self._lock:
            self.count += difference
            if difference > 0:
                tracer.BUSY.append(None)
            else:
                tracer.BUSY.pop()
            if self.count == max(difference, 0):
                for listener in list(self._listeners):
                    listener.modes_changed()

    def note_donation(self) -> None:
        """From now on arrays may have lost their memory."""
        with self._lock:
            if not self.donates:
                self.donates = True
                for listener in list(self._listeners):
                    listener.modes_changed()


SPECIAL = Special()
AFTER_FORK.append(lambda: SPECIAL.change(1))  # the fast way would run what must be refused

_runs_python = util.OfThread(False)


@contextmanager
def counted() -> Iterator[None]:
    """Within the block, fast ways that know no modes are not taken."""
    SPECIAL.change(1)
    try:
        yield
    finally:
        SPECIAL.change(-1)


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Within the block, jitted functions, checkpoints, loops and branches run as plain Python on arrays.

    With False they run compiled, also within an outer `disable_jit()` block.

    A debugger stops in them, and `print` shows elements. Values and derivatives are the same. Loops and branches in a
    function that is being traced are not affected, and neither are branches and `while_loop`s under `vmap` whose
    condition differs between lanes.

    >>> from fiveloop.core import jit
    >>> with disable_jit():
    ...     jit(lambda x: float(x) + 1.0)(2.0)
    Array(3., dtype=float32, weak_type=True)
    """
    with _runs_python.to(disable), counted():
        yield


@contextmanager
def checking_leaks() -> Iterator[None]:
    """Within the block, LeakError is raised if a traced value is still referenced after its function has returned.

    The error names the holder: a global, an attribute, a variable that a function closes over. Without the block,
    only the use of such a value is an error. Within it, functions that were jitted before are traced again, and
    everything is slower.

    >>> from fiveloop.core import jit
    >>> kept = []
    >>> with checking_leaks():
    ...     jit(lambda x: (kept.append(x), x)[1])(1.0)
    Traceback (most recent call last):
    ...
    fiveloop.core.errors.LeakError: a traced value of type f32*[]...
    """
    with counted(), leaks.noting_ended():
        yield


@contextmanager
def debug_nans() -> Iterator[None]:
    """Within the block, an operation whose result contains a nan raises NanError, with its name and the user's line.

    Jitted functions run compiled first. If a result contains a nan, the function runs again as Python, to find the
    operation.

    >>> from fiveloop.core.extend import OPS
    >>> with debug_nans():
    ...     OPS["divide"](0.0, 0.0)
    Traceback (most recent call last):
    ...
    fiveloop.core.errors.NanError: `div` made a nan...
    """
    if _bottom() is not tracer.current_trace():
        raise TypeError(
            "debug_nans: it must be entered outside of traced functions, around their calls"
            f"{errors.at_source(tracer.current_source())}"
        )
    with counted(), tracer.use_trace(_NAN_TRACE):
        yield


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Within the block, operations run now, on known values, also while a function is traced.

    A traced value in one of them is an error.

    >>> from fiveloop.core import jit
    >>> from fiveloop.core.extend import as_value
    >>> def table(x):
    ...     with ensure_compile_time_eval():
    ...         size = int(as_value([1, 2, 3].__len__()) * 2)
    ...     return x * size
    >>> jit(table)(1.0)
    Array(6., dtype=float32, weak_type=True)
    """
    with tracer.running_now(_bottom()):
        yield


def _bottom() -> tracer.Trace:
    trace = tracer.current_trace()
    while trace.parent is not None:
        trace = trace.parent
    return trace


class _NanTrace(tracer.EvalTrace):
    """The bottom, where every result is looked at."""

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        outs = super().process(prim, args, params)
        for x in outs:
            if isinstance(x, arrays.Concrete) and has_nan(x):
                raise errors.NanError(_nan_message(prim, args, x))
        return outs


_NAN_TRACE = _NanTrace(None)


def _nan_message(prim: ir.Primitive[Any], args: ad.Values, out: arrays.Concrete) -> str:
    at = tuple(int(k) for k in np.argwhere(np.isnan(out.numpy()))[0])
    where = f" at [{', '.join(map(str, at))}]" if at else ""
    already = [k for k, x in enumerate(args) if _holds_nan(x)]
    mutable = [k for k, x in enumerate(args) if x.aval.accumulates]
    given = "its operands hold none"
    if already:
        given = f"its operand {already[0]} holds one already"
    elif mutable:
        given = (
            f"its operands hold none after it, and operand {mutable[0]} may have held one before"
        )
    types = ", ".join(str(x.aval) for x in args)
    return (
        f"`{prim.name}` made a nan{where} of {out.aval} from operands ({types}): {given}; keep the operands where the "
        f"operation is defined, also in the part that `where` does not choose, or leave `debug_nans`"
        f"{errors.at_source(tracer.current_source())}"
    )


def _holds_nan(x: Value) -> bool:
    """Whether an operand holds a nan; a mutable operand is read."""
    if x.aval.accumulates and ir.is_inexact(x.dtype):
        with tracer.use_trace(tracer.EvalTrace(None)):
            x = x[...]
    return isinstance(x, arrays.Concrete) and has_nan(x)


def has_nan(x: Any) -> bool:
    """Whether there is a nan in a concrete array."""
    return ir.is_inexact(x.dtype) and bool(np.isnan(x.numpy()).any())


def finds_nans() -> bool:
    """Whether nans are refused now."""
    return SPECIAL.count > 0 and _bottom() is _NAN_TRACE


def inlines_jit() -> bool:
    """Whether a jitted function is called as what it is made from."""
    return SPECIAL.count > 0 and _runs_python.value


def branches_as_python() -> bool:
    """Whether conditions are known as well: not under `vmap`, whose lanes may differ."""
    trace: tracer.Trace | None = tracer.current_trace()
    while trace is not None:
        if not trace.decides:
            return False
        trace = trace.parent
    return True


def is_staging(trace: tracer.Trace | None) -> bool:
    """Whether a trace, or one that it stands on, writes a jaxpr down."""
    while trace is not None:
        if type(trace) is StageTrace:
            return True
        trace = trace.parent
    return False


def python_form(python: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Name the function that replaces the decorated function where bodies run as Python, with the same arguments.

    It also looks for the origin of a nan: the traced form knows only that there is a nan.
    """

    def decorate(fun: Callable[P, R]) -> Callable[P, R]:
        @wraps(fun)
        def chosen(*args: P.args, **kwargs: P.kwargs) -> R:
            if not SPECIAL.count:
                return fun(*args, **kwargs)
            result: R
            staging = is_staging(tracer.current_trace())
            if inlines_jit() and not staging:
                result = python(*args, **kwargs)
                return result
            if not finds_nans() or staging:
                return fun(*args, **kwargs)
            return looking_for_nans(lambda: fun(*args, **kwargs), lambda: python(*args, **kwargs))

        return chosen

    return decorate


def looking_for_nans(compiled: Callable[[], R], python: Callable[[], object]) -> R:
    """The result of `compiled`; if it, or a value that it has changed, holds a nan, `python` is run for a better error.

    First the changes of `compiled` are undone; its calls of Python are not made again.
    """
    with replay.noting() as notes:
        error: errors.NanError | None = None
        try:
            out = compiled()
            if not any(change.has_new_nan() for change in notes.changes):
                return out
        except errors.NanError as found:
            error = found
        notes.restore()
    with disable_jit(), replay.replaying(notes):
        python()
    raise error or errors.NanError(
        f"a compiled program wrote a nan to a Ref, but its functions run as Python wrote none; leave `debug_nans`"
        f"{errors.at_source(tracer.current_source())}"
    )


T = TypeVar("T", bound=Hashable)

_chosen: util.OfThread[tuple[tuple[str, util.Exact], ...]] = util.OfThread(())


class Setting(Generic[T]):
    """A value with a default that a block may change; values are immutable and can be compared.

    What is traced may depend on `value`, and needs to tell nobody: a function is traced again where it differs.

    >>> precision = Setting("precision", "low")
    >>> with precision.to("high"):
    ...     precision.value
    'high'
    >>> precision.value
    'low'
    """

    def __init__(self, name: str, default: T) -> None:
        self.name = name
        self.default = default

    @property
    def value(self) -> T:
        """What holds here."""
        for name, value in _chosen.value:
            if name == self.name:
                return value.value  # type: ignore[no-any-return]  # `to` has put it there
        return self.default

    @contextmanager
    def to(self, value: T) -> Iterator[None]:
        """Within the block the setting has this value, in this thread."""
        others = [pair for pair in _chosen.value if pair[0] != self.name]
        exact = util.Exact(value)
        mine = [] if exact == util.Exact(self.default) else [(self.name, exact)]
        chosen = sorted([*others, *mine], key=lambda pair: pair[0])
        with _chosen.to(tuple(chosen)), counted():
            yield


class UserContext(Setting[T]):
    """A setting of a user's own: `with context(value):` changes it, `context.value` is what holds."""

    def __call__(self, value: T) -> AbstractContextManager[None]:
        """A block within which the context has this value."""
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"{self.name}: expected a hashable value, as functions are traced anew for each, got {value!r} of type "
                f"{type(value).__name__}; pass a tuple in place of a list{errors.at_source(ir.user_source())}"
            ) from None
        return self.to(value)


_serial = count()


def make_user_context(default_value: T, *, name: str = "user context") -> UserContext[T]:
    """A value that functions may depend on while they are traced: a jitted function has a program for each.

    >>> from fiveloop.core import jit
    >>> scale = make_user_context(1.0, name="scale")
    >>> scaled = jit(lambda x: x * scale.value)
    >>> with scale(3.0):
    ...     print(scaled(2.0))
    6.0
    >>> print(scaled(2.0))
    2.0
    """
    return UserContext(f"{name} #{next(_serial)}", default_value)


def chosen_settings() -> tuple[tuple[str, Hashable], ...]:
    """The settings that are not at their defaults here, with their values."""
    return _chosen.value


def trace_context() -> tuple[Any, ...]:
    """The context of a trace, besides the function and its arguments: part of every key of cached traces.

    The context is listed here alone: the bound named axes, and the settings of the block. Reading an axis is noted
    (`note_context`), so that a program that has read one is not run by the fast path, which knows no context; while a
    setting is changed, no program is.
    """
    return (*tracer.current_trace().visible_axes(), *_chosen.value)

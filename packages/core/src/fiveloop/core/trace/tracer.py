"""Traces and tracers: the current trace, and `bind`, by which every operation reaches it."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import FrameType
from typing import Any, ClassVar, NoReturn, Protocol

from fiveloop.core import ad, errors
from fiveloop.core.arrays.array import Concrete, Fixed, Value, setter
from fiveloop.core.ir.axes import NamedAxis
from fiveloop.core.ir.jaxpr import NO_PARAMS, Eqn, Primitive
from fiveloop.core.ir.source import Source, function_source, is_internal, raised_at, user_source
from fiveloop.core.lower.dispatch import run_eagerly
from fiveloop.core.rules import impl_rules
from fiveloop.core.util import P, R


class Trace:
    """An interpretation of operations. A transform makes its own, runs the user's function, and ends it.

    `parent` is the trace under which the rules of this one run. `live` ends when the traced function returns;
    a tracer used after that has escaped. `decides` says whether what its values are is known while it runs, so
    that Python may branch on them. `axis` is the named axis that the trace binds, if any.
    """

    decides: ClassVar[bool] = True
    axis: NamedAxis | None = None

    def __init__(self, parent: Trace | None, fun: object = None) -> None:
        self.parent = parent
        self.live = True
        self.fun = fun
        self.refused: errors.ConcretizationError | None = None

    def process(self, prim: Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        """Interpret one operation."""
        raise TypeError(f"{type(self).__name__} interprets nothing")

    def hand_on(self, prim: Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        """Let the parent interpret one operation; as in a block of `use_trace`, in less time."""
        parent = self.parent
        assert parent is not None, "unreachable: the bottom interprets all operations itself"
        before, current.trace = current.trace, parent
        try:
            return parent.process(prim, args, params)
        finally:
            current.trace = before

    def visible_axes(self) -> tuple[tuple[Hashable, NamedAxis], ...]:
        """The names of axes that may be used in it, innermost first, and the axes that they stand for."""
        own = () if self.axis is None else ((self.axis.name, self.axis),)
        return own if self.parent is None else (*own, *self.parent.visible_axes())

    def knows(self, owner: Trace) -> bool:
        """Whether it can tell what the values of a trace are, which may have ended."""
        return owner is self


Origin = Source | str | None
"""Where a tracer was made: the user's line, or in words."""
ARGUMENT = "an argument"
"""Stands for the place where a tracer was made, if it stands for an argument of the traced function."""


class Tracer(Fixed):
    """A stand-in for a value in a traced function."""

    __slots__ = ("__weakref__", "_trace", "source")
    _trace: Trace
    source: Origin

    def __init__(self, trace: Trace, source: Origin = None) -> None:
        _set_trace(self, trace)
        _set_source(self, source)
        _set_note(self, None)

    @property
    def owner(self) -> Trace:
        """The trace that made this tracer."""
        return self._trace

    def __reduce__(self) -> NoReturn:
        self._refuse("pickled", "return it from the function, and pickle the result")

    def _refuse(self, what: str, advice: str = "") -> NoReturn:
        if not self._trace.live:
            raise escaped(self)
        if self.aval.accumulates:
            super()._refuse(what)
        error = errors.ConcretizationError(
            f"the traced value {self!r} was asked to be {what} while {function_source(self._trace.fun)} is traced; "
            f"{advice}{errors.at_source(current_source())}"
        )
        self._trace.refused = error
        raise error

    def __repr__(self) -> str:
        return f"Traced<{self.aval}>"


_set_trace, _set_source = setter(Tracer, "_trace"), setter(Tracer, "source")
_set_note = setter(Value, "_note")


def where_made(tracer: Tracer) -> str:
    """Where a tracer comes from, as a part of a message."""
    if tracer.source is ARGUMENT:
        return " that came in as an argument"
    return "" if tracer.source is None else f" made at {tracer.source}"


def escaped(tracer: Tracer) -> errors.EscapedTracerError:
    """The error for a tracer used after its trace has ended."""
    return errors.EscapedTracerError(
        f"a traced value of type {tracer.aval}{where_made(tracer)} while tracing {function_source(tracer.owner.fun)} "
        f"has escaped: that function has returned, so the value no longer exists; return it from the function "
        f"instead of storing it{errors.at_source(current_source())}"
    )


def _not_now(tracer: Tracer, prim: Primitive[Any]) -> errors.ConcretizationError:
    """The error for a tracer whose function is being traced, where operations run now."""
    return errors.ConcretizationError(
        f"`{prim.name}` was asked to run now, on a traced value of type {tracer.aval}, while "
        f"{function_source(tracer.owner.fun)} is traced; leave `ensure_compile_time_eval` before traced values are "
        f"used, and use them in the thread that traces{errors.at_source(current_source())}"
    )


def out_of_reach(tracer: Tracer) -> errors.TracerError:
    """The error for a tracer used beneath the transform that it belongs to, by a rule that closes over it."""
    return errors.TracerError(
        f"a traced value of type {tracer.aval}, of a transform of {function_source(tracer.owner.fun)}, is used where "
        f"that transform has handed over to a custom rule, which may use only its arguments: what the rule and its "
        f"function close over is not differentiated; pass the value as an argument{errors.at_source(current_source())}"
    )


def check_reached(x: Value, trace: Trace | None) -> None:
    """Raise if a value is a tracer of a transform that a trace does not stand on."""
    if not isinstance(x, Tracer):
        return
    while trace is not None and not trace.knows(x.owner):
        trace = trace.parent
    if trace is None:
        raise out_of_reach(x) if x.owner.live else escaped(x)


class EvalTrace(Trace):
    """The bottom: every operation runs now, on concrete values."""

    def process(self, prim: Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        for arg in args:
            if isinstance(arg, Tracer):
                if not arg.owner.live:
                    raise escaped(arg)
                beneath = arg.owner.decides and not current.now
                raise out_of_reach(arg) if beneath else _not_now(arg, prim)
        impl = impl_rules.get(prim)
        return impl(args, params) if impl is not None else run_eagerly(prim, args, params)


EVAL = EvalTrace(None)

MISUSE = (TypeError, ValueError, IndexError, OverflowError, errors.UnboundAxisError)
"""The types of the errors that rules and public functions raise about what they are given."""


class _Current(threading.local):
    trace: Trace = EVAL
    source: Source | None = None
    within: tuple[FrameType, Source] | None = None
    now: bool = False
    context_uses: int = 0
    watch: Watch | None = None


current = _Current()


def current_trace() -> Trace:
    """The trace that interprets operations now."""
    return current.trace


def current_source() -> Source | None:
    """The user's line that an operation comes from: of the equation that is being interpreted, or of the call."""
    if current.source is not None:
        return current.source
    if current.within is None:
        return user_source()
    frame, outer = current.within
    own = user_source(frame)
    return outer if own is None else own._replace(marks=outer.marks)


@contextmanager
def users_lines() -> Iterator[None]:
    """Within the block, operations come from the lines of the user's function that it calls.

    While an equation is interpreted they come from its line. Where its rule is the user's, the line within the rule
    says more; a rule of the library's has none, and leaves it at that.
    """
    outer, within = current.source, current.within
    if outer is not None:
        current.source, current.within = None, (sys._getframe(), outer)
    try:
        yield
    except MISUSE as error:
        locate(error)
        raise
    finally:
        current.source, current.within = outer, within


def note_context() -> None:
    """Note that what is being traced depends on its context, not on its arguments alone."""
    current.context_uses += 1


def context_uses() -> int:
    """How often the context has been asked for something: if more often after a trace, the trace depends on it."""
    return current.context_uses


def raised_within(error: BaseException) -> bool:
    """Whether an error has been raised by the library."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and is_internal(innermost.tb_frame.f_code)


def locate(error: Exception) -> None:
    """Let the message of an error that the library has raised end with the user's line; others stay as they are.

    The line is that of the equation being interpreted, else the innermost of the user's program that has led to the
    error. Whatever sets the line calls this before it sets another: `bind`, `keep_source`, `users_lines`; and so does
    every boundary. What raises an error below these says nothing of lines.
    """
    if raised_within(error):
        errors.add_source(error, current.source or raised_at(error) or current_source())


@contextmanager
def keep_source() -> Iterator[Callable[[Source | None], None]]:
    """Within the block, the function given sets the line that operations are said to come from."""
    previous = current.source

    def set_source(source: Source | None) -> None:
        current.source = source or previous

    try:
        yield set_source
    except MISUSE as error:
        locate(error)
        raise
    finally:
        current.source = previous


BUSY: list[None] = []
"""As many items as there are traces and modes that some thread is in. Without any, operations simply run: to ask
this list takes a fifth of what it takes to ask for the trace of a thread."""


class use_trace:
    """Interpret operations by `trace` within the block; they come from the line `source`, if it is given.

    A class, as every operation that is differentiated or batched enters such a block.
    """

    __slots__ = ("_source", "_trace")

    def __init__(self, trace: Trace, source: Source | None = None) -> None:
        self._trace = trace
        self._source = source

    def __enter__(self) -> None:
        BUSY.append(None)
        self._trace, current.trace = current.trace, self._trace
        self._source, current.source = current.source, self._source or current.source

    def __exit__(self, *error: object) -> None:
        current.trace, current.source = self._trace, self._source
        BUSY.pop()


@contextmanager
def running_now(bottom: Trace) -> Iterator[None]:
    """Let operations run now within the block, because the user asks for it: errors say so."""
    before, current.now = current.now, True
    try:
        with use_trace(bottom):
            yield
    finally:
        current.now = before


@contextmanager
def running(trace: Trace) -> Iterator[None]:
    """Run a traced function's body under `trace`, which ends with it."""
    with use_trace(trace):
        try:
            yield
        except MISUSE as error:
            locate(error)
            # What a tracer said before NumPy or Python may have swallowed.
            if trace.refused not in (None, error) and not errors.is_located(error):
                error.add_note(f"before this, {trace.refused}")
            raise
        except RecursionError as error:
            _tell_recursion(error, trace)
            raise
        finally:
            trace.live = False
            trace.refused = None
            if current.watch is not None:
                current.watch.ended.append(weakref.ref(trace))


def _tell_recursion(error: RecursionError, trace: Trace) -> None:
    """Say which function calls itself without end while it is traced, and where."""
    if not errors.is_located(error):
        error.args = (
            f"{error} while {function_source(trace.fun)} is traced: a function calls itself without end, or too often: "
            "tracing takes every branch of `cond`, as no value is known; loop with `while_loop`, or let a static "
            f"argument end the recursion{errors.at_source(raised_at(error))}",
        )


class Watch(Protocol):
    """The leak checker: it has the traces that have ended, and looks for what holds their values."""

    ended: list[weakref.ref[Trace]]

    def run(self, engine: Callable[[], R]) -> R:
        """What the engine gives; then nothing may hold values of traces that have ended in it."""


def checks_leaks() -> bool:
    """Whether leaks are looked for."""
    return current.watch is not None


def leak_checked(engine: Callable[P, R]) -> Callable[P, R]:
    """An engine that runs traced functions: when it returns, nothing may hold their values."""

    @wraps(engine)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if current.watch is None:
            return engine(*args, **kwargs)
        return current.watch.run(partial(engine, *args, **kwargs))

    return run


def bind(prim: Primitive[Any], *args: Value, params: Any = NO_PARAMS) -> list[Value]:
    """Apply a primitive under the current trace; the results are always a list.

    The operands are values (`as_value` makes them). What happens is up to the trace: the primitive is run, written
    down, differentiated or batched, each by its rule.

    >>> square = ClosedCallParams(make_jaxpr(lambda x: x * x)(1.0))
    >>> bind(closed_call_p, as_value(3.0), params=square)[0].item()
    9.0
    """
    try:
        return current.trace.process(prim, args, params)
    except MISUSE as error:
        locate(error)
        raise


def bind_eqn(eqn: Eqn, operands: ad.Values) -> list[Value]:
    """What an equation gives under the current trace."""
    return bind(eqn.primitive, *operands, params=eqn.params)


def bind1(prim: Primitive[Any], *args: Value, params: Any = NO_PARAMS) -> Value:
    """Apply a primitive that has one result.

    >>> def double(x):
    ...     return bind1(add_p, as_value(x, "double: x"), as_value(x))
    >>> double(2.0).item(), grad(double)(2.0).item()
    (4.0, 2.0)
    """
    try:
        return current.trace.process(prim, args, params)[0]
    except MISUSE as error:
        locate(error)
        raise


def is_eager() -> bool:
    """Whether operations run now, because nothing is being traced."""
    return current.trace is EVAL


def is_concrete(x: Value) -> bool:
    """Whether a value's elements are known now.

    >>> seen = []
    >>> y = jit(lambda x: seen.append(is_concrete(x)) or x)(1.0)
    >>> seen, is_concrete(y)
    ([False], True)
    """
    return isinstance(x, Concrete)


def check_live(x: Value) -> None:
    """Raise if a value is a tracer whose trace has ended."""
    if isinstance(x, Tracer) and not x.owner.live:
        raise escaped(x)

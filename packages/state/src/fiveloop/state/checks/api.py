"""The public functions, `check`, `checked` and `checkify`, and the error value that `checkify` returns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any

import numpy as np

from fiveloop.core import ArrayLike, Jaxpr, Value, arrays, pytree, trace
from fiveloop.core.api import flat_function, flatten, staging
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.errors import at_source
from fiveloop.core.util import P, R
from fiveloop.state import handlers, primitives
from fiveloop.state.checks import insert
from fiveloop.state.checks.effect import CheckEffect, InsertedCheckEffect
from fiveloop.state.checks.primitive import CheckParams, check_p
from fiveloop.state.checks.record import CheckError, CheckSite, error_in


class ErrorValue:
    """The first check that has failed in a function, or none; under `vmap` the first of each lane.

    It is a container of one array, and so can be returned from functions under `jit` and `vmap`. It is true if
    something has failed; `error[k]` is the error of lane `k`.
    """

    __slots__ = ("record",)

    def __init__(self, record: Value) -> None:
        self.record = record

    def first(self) -> CheckError | None:
        """The exception of the first lane in which something has failed, or None."""
        records = np.asarray(self.record)
        failed = np.argwhere(records[..., 0])
        if not len(failed):
            return None
        lane = tuple(failed[0])
        return error_in(records[lane], lane)

    def get(self) -> str | None:
        """The message of the failed check, or None."""
        error = self.first()
        return None if error is None else str(error)

    def throw(self) -> None:
        """Raise CheckError if something has failed."""
        error = self.first()
        if error is not None:
            raise error

    def __bool__(self) -> bool:
        return self.first() is not None

    def __getitem__(self, lane: Any) -> ErrorValue:
        return ErrorValue(self.record[lane])

    def __repr__(self) -> str:
        shown = self.record if isinstance(self.record, trace.Tracer) else repr(self.get())
        return f"ErrorValue({shown})"


pytree.register_node(
    ErrorValue, lambda error: ((error.record,), None), lambda _, xs: ErrorValue(*xs), ["record"]
)


user_checks: insert.Checks = frozenset([insert.USER])
index_checks: insert.Checks = frozenset(["index"])
nan_checks: insert.Checks = frozenset(["nan"])
div_checks: insert.Checks = frozenset(["div"])
float_checks: insert.Checks = nan_checks | div_checks
all_checks: insert.Checks = insert.KINDS


@trace.boundary
def check(
    pred: ArrayLike, message: str, *format_args: ArrayLike, **format_kwargs: ArrayLike
) -> None:
    """Raise CheckError with a message if a predicate is false; in traced code when the call returns.

    `pred` is a bool scalar. The message is formatted as by `str.format`, with the values of arrays; a format
    specification is applied to each element. The error reports the first check of a call that fails: in a loop that of
    the first step, in a `cond` only checks of the branch taken, under `vmap` that of the first lane. It lists the steps
    and the lanes, outermost first. A derivative checks once, and a recomputation does not check again.

    >>> from fiveloop.core import jit
    >>> @jit
    ... def root(x):
    ...     check(x >= 0.0, "no root of {}", x)
    ...     return x**0.5
    >>> root(4.0)
    Array(2., dtype=float32, weak_type=True)
    >>> root(-4.0)
    Traceback (most recent call last):
    ...
    fiveloop.state.checks.record.CheckError: no root of -4.0...
    """
    where = trace.current_source()
    holds = arrays.as_value(pred, "check: pred")
    if holds.dtype.kind != "b" or holds.ndim:
        raise TypeError(
            f"check: pred must be one bool, got {holds.aval}; compare, and reduce with `.all()`"
        )
    if not isinstance(message, str):
        raise TypeError(f"check: message must be a string, got {message!r}")
    values = [arrays.as_value(x, "check: a value of the message") for x in format_args]
    values += [arrays.as_value(x, f"check: {name}") for name, x in format_kwargs.items()]
    source = None if where is None else str(where)
    site = CheckSite(message, tuple(x.aval.strong() for x in values), tuple(format_kwargs), source)  # type: ignore[misc]  # values are arrays
    try:
        site.format([np.zeros(a.shape, a.dtype)[()] for a in site.avals])
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise ValueError(
            f"check: the message {message!r} cannot be formatted with values of types {[x.aval for x in values]} "
            f"({type(error).__name__}: {error}); give one for each pair of braces"
        ) from None
    trace.bind(check_p, holds, *values, params=CheckParams(site))


def checked(fun: Callable[P, R], errors: insert.Checks = insert.KINDS) -> Callable[P, R]:
    """`fun` with checks of indices, divisors and results, which the library inserts; `errors` selects the kinds.

    A check that fails raises as a user's `check` does.

    >>> checked(lambda x, i: x[i])(np.arange(3), 5)
    Traceback (most recent call last):
    ...
    fiveloop.state.checks.record.CheckError: index 5 is out of bounds for an axis of size 3...
    """
    kinds = _kinds("checked", errors)
    flatten.check_callable("checked", fun)

    @wraps(fun)
    @trace.guarded
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        jaxpr, operands, flat = _traced("checked", fun, args, kwargs, kinds)
        params = ClosedCallParams(jaxpr, flatten.function_name(fun))
        out: R = flat.unflatten(trace.bind(closed_call_p, *operands, params=params))
        return out

    return call


def checkify(
    fun: Callable[P, R], errors: insert.Checks = user_checks
) -> Callable[P, tuple[ErrorValue, R]]:
    """A function that returns the first failed check of `fun` as a value, and the result of `fun`.

    `errors` is a set of kinds, joined with `|`: `user_checks`, `index_checks`, `nan_checks`, `div_checks`,
    `float_checks`, `all_checks`. If `user_checks` is not among them, the user's own checks raise as usual.

    >>> from fiveloop.core import jit
    >>> error, y = jit(checkify(lambda x: x / 0.0, errors=div_checks))(1.0)
    >>> bool(error), y
    (True, Array(inf, dtype=float32, weak_type=True))
    """
    kinds = _kinds("checkify", errors)
    flatten.check_callable("checkify", fun)
    effect = CheckEffect if insert.USER in kinds else InsertedCheckEffect

    @wraps(fun)
    @trace.guarded
    def call(*args: P.args, **kwargs: P.kwargs) -> tuple[ErrorValue, R]:
        jaxpr, operands, flat = _traced("checkify", fun, args, kwargs, kinds)
        record = effect.initial([e for e in jaxpr.effects if isinstance(e, effect)])
        threaded = handlers.thread_effect(jaxpr, effect, record.aval)
        ref = primitives.ref_of(record)
        params = ClosedCallParams(threaded, flatten.function_name(fun))
        outs = trace.bind(closed_call_p, ref, *operands, params=params)
        return ErrorValue(trace.bind1(primitives.freeze_p, ref)), flat.unflatten(outs)

    return call


def _traced(
    what: str, fun: Callable[..., Any], args: Any, kwargs: Any, kinds: insert.Checks
) -> tuple[Jaxpr, list[Value], flat_function.FlatFunction]:
    """A function's jaxpr with checks in it, its operands, and how its results are put together."""
    naming = flatten.argument_naming(what, fun)
    values, tree = flatten.flatten_arguments((args, kwargs), naming)
    with insert.INSERTED.to(kinds - {insert.USER}):
        staged, flat = staging.stage_call(fun, values, tree)
    flatten.refuse_closed_over(naming, staged.captured, values, tree)
    jaxpr = insert.insert_checks(staged.jaxpr, kinds - {insert.USER})
    return jaxpr, [*staged.captured, *values], flat


def _kinds(what: str, errors: Any) -> insert.Checks:
    is_set = isinstance(errors, Collection) and not isinstance(errors, str)
    if not is_set or not insert.KINDS.issuperset(errors):
        raise TypeError(
            f"{what}: errors must be a set of kinds of checks, got {errors!r}; join `user_checks`, `index_checks`, "
            f"`nan_checks` and `div_checks` with `|`, or use `all_checks`{at_source(trace.current_source())}"
        )
    return frozenset(errors)

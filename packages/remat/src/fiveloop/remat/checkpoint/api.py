"""`checkpoint`: what users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, overload

from fiveloop.core import Policy
from fiveloop.core.engine import (
    argument_naming,
    boundary,
    call_as_python,
    flatten_arguments,
    function_name,
    guarded,
    python_form,
    refuse_closed_over,
    stage_call,
    with_static,
)
from fiveloop.core.extend import bind, check_callable
from fiveloop.remat.checkpoint.labels import tell_of_unknown
from fiveloop.remat.checkpoint.primitive import CheckpointParams, Origin, checkpoint_p
from fiveloop.remat.policies import SaveOnlyTheseNames, nothing_saveable

P = ParamSpec("P")
R = TypeVar("R")


@overload
def checkpoint(
    fun: Callable[P, R],
    *,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[P, R]: ...


@overload
def checkpoint(
    *,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


@boundary
def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[..., Any]:
    """`fun`, whose derivative saves what `policy` says and computes the rest again.

    Values and derivatives are those of `fun`. Without a policy nothing but the arguments is saved. A policy is one
    of `fiveloop.remat.policies`, or any function from an equation to whether its results are saved; it reaches into
    calls, loops and branches. Within another checkpoint only what both policies save is saved. Static arguments are
    hashable Python values that the function may depend on, as in `jit`. Without a function it is a decorator:
    `@checkpoint(policy=...)`. A name in `save_only_these_names` that labels nothing in `fun` is told by a warning of
    the logger "fiveloop.remat".

    >>> import fiveloop.numpy as fnp
    >>> from fiveloop.core import grad
    >>> grad(checkpoint(lambda x: fnp.sin(fnp.sin(x))))(1.0)
    Array(0.36003947, dtype=float32)
    """
    if fun is None:
        how: dict[str, Any] = {"static_argnums": static_argnums, "static_argnames": static_argnames}
        return partial(checkpoint, policy=policy, **how)
    check_callable("checkpoint", fun)
    chosen = nothing_saveable if policy is None else policy
    if not callable(chosen):
        raise TypeError(f"checkpoint: policy must be callable on an equation, got {policy!r}")
    if static_argnums != () or static_argnames != ():
        return with_static(
            "checkpoint", fun, static_argnums, static_argnames, partial(checkpoint, policy=policy)
        )

    naming = argument_naming("checkpoint", fun)

    @wraps(fun)
    @guarded
    @python_form(lambda *args, **kwargs: call_as_python(fun, args, kwargs, naming))
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        values, tree = flatten_arguments((args, kwargs), naming)
        staged, flat = stage_call(fun, values, tree)
        refuse_closed_over(naming, staged.captured, values, tree)
        if isinstance(chosen, SaveOnlyTheseNames):
            tell_of_unknown(chosen.names, staged.jaxpr, function_name(fun))
        params = CheckpointParams(staged.jaxpr, chosen, Origin(function_name(fun)))
        return flat.unflatten(bind(checkpoint_p, *staged.captured, *values, params=params))

    return checkpointed

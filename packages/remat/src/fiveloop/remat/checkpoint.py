"""`checkpoint`: a call whose residuals a policy chooses; other values are recomputed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, TypedDict, Unpack, overload

from fiveloop.core import Jaxpr, ad, errors, extend, ir, trace, transforms
from fiveloop.core.api import arguments, flat_function, flatten, staging
from fiveloop.core.api.flatten import flatten_arguments, refuse_closed_over
from fiveloop.core.closed_call import call_halves, gives_again, kept_outs
from fiveloop.core.dataclass import replace
from fiveloop.core.primitives import check
from fiveloop.core.util import P, R
from fiveloop.remat.budget.amount import amount
from fiveloop.remat.budget.plan import planned
from fiveloop.remat.makers import maker_of
from fiveloop.remat.name import labels_in, may_get_labels, tell_of_unknown, with_labels
from fiveloop.remat.policies import both_save, names_in, nothing_saveable, undecided
from fiveloop.remat.primitive import AGAIN, CheckpointParams, Origin, checkpoint_p
from fiveloop.state import discharge
from fiveloop.state.core_rules import call_discharge

_AS_DECORATOR: Any = object()
"""In the place of a function that is given later: None is a mistake."""


class Options(TypedDict, total=False):
    """Options of a checkpoint, for the type checker."""

    policy: transforms.Policy | None
    budget: str | float | None
    prevent_cse: bool
    static_argnums: int | Sequence[int]
    static_argnames: str | Sequence[str]


@overload
def checkpoint(fun: Callable[P, R], **options: Unpack[Options]) -> Callable[P, R]: ...
@overload
def checkpoint(**options: Unpack[Options]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@trace.boundary
def checkpoint(
    fun: Any = _AS_DECORATOR,
    *,
    policy: transforms.Policy | None = None,
    budget: str | float | None = None,
    prevent_cse: bool = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[..., Any]:
    """`fun`, with a derivative that saves the values that `policy` selects and recomputes the others.

    Values and derivatives are those of `fun`. Without a policy, only the arguments are saved. A policy is one of
    `fiveloop.remat.policies`, or any function that takes an equation and returns whether its results are saved; it
    applies in calls, loops and branches, too. Within another checkpoint, a value is saved if both policies save it.
    Static arguments are hashable Python values that the function may depend on, as in `jit`. With `prevent_cse=False`
    XLA may merge a recomputation with the first computation, which undoes the checkpoint where both are in one body.
    Without a function it is a decorator: `@checkpoint(policy=...)`; TypeError if `fun` is given and is no function. The
    logger "fiveloop.remat" warns if a name in a policy labels no value of `fun`.

    With a `budget` of memory, the saved values are chosen so that the gradient of `fun`, compiled alone, needs no more
    temporary memory than that, in the least estimated time. A budget is a number of bytes as an int or as text ("2GiB",
    "24 MB"), or a fraction from 0.0, the least memory of any plan, to 1.0, room for saving everything; text without a
    unit is read as the number that it writes. If a policy is given too, the budget decides only where the policy has no
    opinion. Raises UnattainableError, a ValueError whose `least` is the least memory of any plan, if no plan is within
    the budget.

    >>> import fiveloop.numpy as fnp
    >>> from fiveloop.core import grad
    >>> grad(checkpoint(lambda x: fnp.sin(fnp.sin(x))))(1.0)
    Array(0.36003947, dtype=float32)
    """
    room = None if budget is None else amount(budget)
    chosen = _chosen(policy, nothing_saveable if room is None else undecided)
    apart = check.known_bool("checkpoint", "prevent_cse", prevent_cse)
    again = partial(checkpoint, policy=policy, budget=budget, prevent_cse=apart)
    if fun is _AS_DECORATOR:
        return partial(again, static_argnums=static_argnums, static_argnames=static_argnames)
    if not callable(fun) or isinstance(fun, transforms.Composable):
        raise TypeError(
            f"checkpoint: fun must be a function, got {errors.in_brief(fun)}; write `policy=` before a policy and "
            "`budget=` before a budget"
        )
    statics = (static_argnums, static_argnames)
    if any(given or not isinstance(given, tuple | list) for given in statics):
        return arguments.with_static("checkpoint", fun, static_argnums, static_argnames, again)

    naming = flatten.argument_naming("checkpoint", fun)

    @wraps(fun)
    @trace.guarded
    @trace.python_form(
        lambda *args, **kwargs: flat_function.call_as_python(fun, args, kwargs, naming)
    )
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        values, tree = flatten_arguments((args, kwargs), naming)
        staged, flat, labels = with_labels(lambda: staging.stage_call(fun, values, tree))
        refuse_closed_over(naming, staged.captured, values, tree)
        name = flatten.function_name(fun)
        unlabelled = names_in(chosen) - labels
        if not may_get_labels(staged.jaxpr):
            tell_of_unknown(unlabelled, labels, name, trace.current_source())
            unlabelled = frozenset()
        params = CheckpointParams(
            staged.jaxpr, chosen, Origin(name), apart, budget=room, unlabelled=unlabelled
        )
        return flat.unflatten(extend.bind(checkpoint_p, *staged.captured, *values, params=params))

    return checkpointed


def _chosen(policy: transforms.Policy | None, default: transforms.Policy) -> transforms.Policy:
    return default if policy is None else transforms.as_policy("checkpoint: policy", policy)


def checkpoint_lower(
    ctx: Any, operands: Sequence[extend.IRValue], p: CheckpointParams
) -> list[extend.IRValue]:
    """The operations of the jaxpr, in place, and apart from those outside if they might be merged.

    A recomputation is kept apart from the first computation, and from every other recomputation, as the compiler would
    run them at once. Where none is in the same loop body or function body, no barrier is needed.
    """
    again = p.recomputes and p.prevent_cse
    apart = again and any(map(ctx.is_computed, (p.origin, AGAIN))) and operands
    ctx.note_computed(AGAIN if again else p.origin)
    return list((ctx.inline_apart if apart else ctx.inline)(p.jaxpr, operands))


def checkpoint_split(
    plan: extend.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: extend.Eqn
) -> extend.EqnSplit:
    """Both halves; every known operand is at hand in the staged one, and so need not be saved by the policy."""
    p: CheckpointParams = eqn.params
    tell_of_unknown(p.unlabelled, labels_in(p.jaxpr), p.origin.name, eqn.source)
    p = replace(p, unlabelled=frozenset())
    if p.budget is not None and any(unknown):
        p = planned(p, unknown, eqn.source)
    at_hand = [
        not u and (i or not a.aval.accumulates)
        for u, i, a in zip(unknown, inst, eqn.invars, strict=True)
    ]
    inner = extend.SavingPlan(both_save(p.policy, plan.policy), path=plan.path).at_boundary()
    again = gives_again(plan, eqn)
    cut = extend.split(p.jaxpr, unknown, at_hand, inner, ensure_out_inst=again)
    # Where everything is saved, there is nothing to keep apart from the first computation.
    apart = p.prevent_cse and not isinstance(inner.policy, transforms.EverythingSaveable)
    known, staged = replace(p, recomputes=False), replace(p, recomputes=True, prevent_cse=apart)
    # A result is had outside, where the outer policy alone decides.
    outer = plan.outside()
    saved_outs = {k for k in range(len(eqn.outvars)) if maker_of(eqn, k).verdict(outer).saves}
    kept = kept_outs([cut]) | saved_outs if again else None
    halves = call_halves(cut, eqn, known, staged, kept)
    if halves.again:
        # What is computed here for its own sake may be merged with what is computed here to go back.
        here = [replace(e.params, recomputes=False) for e in halves.again]
        halves.again = [e.replace(params=p) for e, p in zip(halves.again, here, strict=True)]
    return halves


def checkpoint_transpose(
    cts: ad.Tangents, operands: ad.Operands, p: CheckpointParams
) -> ad.Cotangents:
    """One call that computes again what was not saved, and then goes backward.

    It waits for the cotangents, so that the values computed again live no longer than they must.
    """
    jaxpr = transforms.parted(p.jaxpr, tuple(map(extend.is_linear, operands)))
    return extend.call_transpose(
        checkpoint_p, cts, operands, replace(p, jaxpr=jaxpr, recomputes=True)
    )


def checkpoint_bodies(p: CheckpointParams) -> list[extend.Body]:
    """The one jaxpr, which runs once."""
    role = "recomputed" if p.recomputes and p.prevent_cse else "checkpointed"
    return [extend.Body(p.jaxpr, role, plain=True, origin=p.origin)]


extend.define(
    checkpoint_p,
    abstract_eval=extend.call_abstract_eval,
    lower=checkpoint_lower,
    jvp=partial(extend.call_jvp, checkpoint_p),
    batch=partial(extend.call_batch, checkpoint_p),
    transpose=checkpoint_transpose,
    split=checkpoint_split,
    dce=extend.call_dce,
    bodies=checkpoint_bodies,
)
discharge.define_discharge(checkpoint_p, partial(call_discharge, checkpoint_p))


@ir.once_per_jaxpr
def without_checkpoints(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with the equations of checkpoints that need no barrier in their place: passes see them there."""
    if not _holds_checkpoints(jaxpr):
        return jaxpr
    flat = ir.without_calls(
        jaxpr, lambda e: e.primitive is checkpoint_p and not e.params.prevent_cse
    )
    inner = [ir.with_jaxprs(e.params, without_checkpoints) for e in flat.eqns]
    return flat.replace(eqns=[e.replace(params=p) for e, p in zip(flat.eqns, inner, strict=True)])


_holds_checkpoints = ir.holding(checkpoint_p)
extend.register_pass(
    extend.Pass("checkpoints", ("dce", "replay"), _holds_checkpoints, without_checkpoints)
)

"""The models in fiveloop: each block under a policy, or the whole loss under a budget."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import fiveloop.numpy as fnp
from benchmarks.model import Action, Plan, Program, Saving
from benchmarks.remat.inputs import (
    MIDDLE,
    NAMES,
    NO_CHECKPOINT,
    POLICIES,
    arguments,
    layers_apart,
    policy_of,
)
from benchmarks.remat.models import MODELS
from benchmarks.remat.models.base import written_out
from benchmarks.remat.models.fiveloop_library import LIBRARY
from fiveloop.core import extend, jit, transforms, value_and_grad
from fiveloop.remat import (
    Residual,
    checkpoint,
    explain_residuals,
    policies,
    residuals,
    saved_residuals,
)
from fiveloop.remat.budget.amount import amount
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p

STEPS = 100
"""How many budgets are tried to find plans."""


def build(model: str, policy: str, size: int, scale: str = "full") -> Program:
    """The loss and its gradient, each block under a checkpoint."""
    library = LIBRARY
    if policy != NO_CHECKPOINT:
        library = replace(library, block=checkpoint(policy=policy_of(policies, policy)))
    loss = lambda params, data: MODELS[model].loss(library, params, data)
    return program(loss, *arguments(model, size, scale))


def within(model: str, budget: float, size: int, scale: str = "full") -> Program:
    """The loss and its gradient, the whole under a budget."""
    loss = checkpoint(lambda params, data: MODELS[model].loss(LIBRARY, params, data), budget=budget)
    return program(loss, *arguments(model, size, scale))


def at_bytes_of(model: str, policy: str, size: int, scale: str = "full") -> Program:
    """The loss and its gradient within the temporary bytes that blocks under a policy need when compiled."""
    theirs = build(model, policy, size, scale)
    temp = jit(theirs.fun).lower(*theirs.args).compile().memory_analysis().temp
    loss = checkpoint(lambda params, data: MODELS[model].loss(LIBRARY, params, data), budget=temp)
    return program(loss, *theirs.args)


def program(loss: Any, params: Any, data: Any) -> Program:
    """What is timed, the bytes that it saves for the backward pass beside its arguments, and those of its budget."""

    def step(params: Any, data: Any) -> dict[str, Any]:
        value, grads = value_and_grad(loss)(params, data)
        return {"loss": value, "grads": grads}

    told = explain_residuals(lambda params: loss(params, data), params)
    allowed = [c.budget.bytes_of(c.least, c.everything) for c in told.choices]
    saving = Saving(saved_bytes(told.residuals), next(iter(allowed), None))
    return Program(step, (params, data), saving=saving)


def saved_bytes(kept: Iterable[Residual]) -> int:
    """The bytes that are saved for the backward pass, but for arguments."""
    return sum(r.bytes for r in kept if "argument" not in r.origin)


def planned(model: str, size: int) -> Program:
    """The loss and its gradient within the middle budget, without a loop, and the plans of budgets and of policies."""
    library = replace(LIBRARY, scan=written_out)
    params, data = layers_apart(model, size)
    loss: Any = lambda params, data: MODELS[model].loss(library, params, data)
    # One jaxpr for all, so that it is planned once.
    jaxpr, names = residuals.staged(model, lambda params: loss(params, data), params)

    def halves(policy: Any, budget: Any) -> residuals.Halves:
        chosen = CheckpointParams(jaxpr, policy, Origin(model), budget=budget)
        eqn = extend.new_eqn(checkpoint_p, jaxpr.invars, chosen)
        return residuals.split_in_halves(jaxpr.replace(eqns=[eqn], outvars=eqn.outvars), names)

    found = [halves(policies.undecided, amount(k / STEPS)) for k in range(STEPS + 1)]
    found += [halves(getattr(policies, policy), None) for policy in POLICIES if policy != NAMES]
    costs = [(saved_bytes(h.residuals()), products(h.both_passes())) for h in found]
    least = min(flops for _, flops in costs)
    plans = dict.fromkeys(Plan(saved, flops - least) for saved, flops in costs)
    one = program(checkpoint(loss, budget=MIDDLE), params, data)
    return replace(one, saving=replace(one.saving, plans=tuple(plans)))


def products(jaxpr: Any) -> int:
    """The operations of the matrix products of a jaxpr without loops."""
    total = 0
    for eqn in jaxpr.eqns:
        total += sum(map(products, extend.jaxprs_in(eqn.params)))
        if eqn.primitive.name == "dot_general":
            total += transforms.equation_cost(eqn).flops
    return total


def planning(size: int) -> Action:
    """Trace a straight chain of so many equations under a budget, and plan what it saves."""
    x = fnp.ones((64,))

    def run() -> dict[str, Any]:
        def chain(x: Any) -> Any:
            for _ in range(size // 2):
                x = fnp.sin(x) * x
            return x

        saved_residuals(checkpoint(chain, budget=0.5), x)
        return {"x": x}

    return Action(run, times=1)

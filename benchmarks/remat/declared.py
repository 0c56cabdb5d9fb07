"""Policies beside jax's on seven models, the default, and budgets."""

from dataclasses import replace
from typing import Any

from benchmarks.model import (
    AtMost,
    Benchmark,
    Case,
    Contender,
    GeomeanLimit,
    Limit,
    NoMoreAgain,
    RatioLimit,
)
from benchmarks.remat.inputs import BUDGETS, NO_CHECKPOINT, POLICIES, TEN_BUDGETS, depth_of
from benchmarks.remat.models import MODELS

HERE = "benchmarks.remat"
LOOPS = ("transformer", "lstm", "neural_ode")
"""The models whose blocks a loop runs."""

SAME = "a checkpoint of each block, same policy"
DEFAULT = "bytes that the default saves, models with loops"
STAGING = "trace, lower and compile a checkpointed 12-layer scan"
PLANNING = "plan a jaxpr of 5,000 equations"
AT_ITS_BYTES = "operations again, at the bytes that torch saves within a budget"
BOUND = "temporary bytes over the budget"
TEN = "temporary bytes over each of ten budgets, gradients equal"
MONOTONE = "a larger budget is not slower"
AT_POLICY = "a budget of a policy's compiled bytes is not slower"
EQUATIONS = 5_000
BESIDE_TORCH = ("transformer", "mixer", "unet")
"""The models that torch runs, too; there the layers of the transformer are written out, as torch has no `scan`."""
SLOW: dict[str, Any] = {"cap": 60.0, "seconds": 3.0, "rtol": 1e-3}
"""How patient a case is, and how exact."""
STAGED = ("nothing_saveable", "dots_saveable")
"""The policies with which compiling a loop of layers is timed."""


def policy_case(model: str, policy: str) -> Case:
    """A model with one policy for each of its blocks, or without a checkpoint."""
    options = {"model": model, "policy": policy}
    limits: list[Limit] = [
        RatioLimit("run", "jax", 1.0, SAME),
        RatioLimit("temp_bytes", "jax", 1.0, SAME),
    ]
    is_staged = model == "transformer" and policy in STAGED
    if is_staged:
        limits.append(RatioLimit("staging", "jax", 1.0, STAGING))
    return Case(
        name=f"{policy}/{model}",
        sizes=(depth_of(model),),
        ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_models:build", options),
        peers=(Contender("jax", "jax", f"{HERE}.jax_models:build", options),),
        limits=tuple(limits),
        staged=is_staged,
        compiles=is_staged,
        **SLOW,
    )


def budget_case(model: str) -> Case:
    """A model within budgets: each keeps within it, and the largest is not slower than the others."""
    build = f"{HERE}.fiveloop_models:within"
    *less, most = (
        Contender(f"budget {b}", "fiveloop", build, {"model": model, "budget": b}) for b in BUDGETS
    )
    ours = replace(most, name="fiveloop")
    return Case(
        name=f"budget {BUDGETS[-1]}/{model}",
        sizes=(depth_of(model),),
        ours=ours,
        peers=tuple(less),
        limits=(
            *(AtMost("of_allowed", 1.05, BOUND, c.name) for c in (ours, *less)),
            *(RatioLimit("run", c.name, 1.0, MONOTONE) for c in less),
        ),
        staged=False,
        **SLOW,
    )


def at_policy_case(model: str, policy: str) -> Case:
    """A model within the compiled bytes of a policy on each block, beside that policy."""
    where = {"model": model, "policy": policy}
    build = f"{HERE}.fiveloop_models"
    return Case(
        name=f"within {policy}/{model}",
        sizes=(depth_of(model),),
        ours=Contender("fiveloop", "fiveloop", f"{build}:at_bytes_of", where),
        peers=(Contender(policy, "fiveloop", f"{build}:build", where),),
        limits=(
            RatioLimit("run", policy, 1.05, AT_POLICY),
            RatioLimit("temp_bytes", policy, 1.05, AT_POLICY),
        ),
        staged=False,
        **SLOW,
    )


def ten_budgets_case(model: str, scale: str) -> Case:
    """A model without a checkpoint, and within ten budgets: all are compiled, agree, and keep within their budget."""
    build = f"{HERE}.fiveloop_models"
    where = {"model": model, "scale": scale}
    within = tuple(
        Contender(f"budget {b:.2f}", "fiveloop", f"{build}:within", {**where, "budget": b})
        for b in TEN_BUDGETS
    )
    return Case(
        name=f"budgets of {model}, {scale}",
        sizes=(depth_of(model, scale),),
        ours=Contender(
            "fiveloop", "fiveloop", f"{build}:build", {**where, "policy": NO_CHECKPOINT}
        ),
        peers=within,
        limits=tuple(AtMost("of_allowed", 1.05, TEN, c.name) for c in within),
        timed=False,
        staged=False,
    )


def torch_case(model: str) -> Case:
    """A model within the middle budget, and the plans that each library finds: ours are those that `pareto` lists."""
    options = {"model": model}
    return Case(
        name=f"torch/{model}",
        sizes=(depth_of(model),),
        ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_models:planned", options),
        peers=(Contender("torch", "torch", f"{HERE}.torch_models:build", options),),
        limits=(NoMoreAgain("torch", AT_ITS_BYTES),),
        staged=False,
        **SLOW,
    )


PLANNING_CASE = Case(
    name="planning",
    sizes=(EQUATIONS,),
    ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_models:planning"),
    peers=(),
    limits=(AtMost("run", 1.0, PLANNING),),
)

CASES = (
    *(policy_case(model, policy) for model in MODELS for policy in (*POLICIES, NO_CHECKPOINT)),
    *(budget_case(model) for model in MODELS),
    *(at_policy_case(model, policy) for model in MODELS for policy in POLICIES),
    *(ten_budgets_case(model, scale) for scale in ("small", "full") for model in MODELS),
    *(torch_case(model) for model in BESIDE_TORCH),
    PLANNING_CASE,
)

BENCHMARK = Benchmark(
    "remat",
    "gradients of seven models under policies and budgets, beside jax with the same policies",
    CASES,
    (
        GeomeanLimit(
            "saved_bytes", "jax", 0.5, DEFAULT, tuple(f"{NO_CHECKPOINT}/{m}" for m in LOOPS)
        ),
    ),
)

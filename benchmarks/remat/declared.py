"""Policies beside jax's on seven models, the default, and budgets."""

from typing import Any

from benchmarks.model import AtMost, Benchmark, Case, Contender, GeomeanLimit, Limit, RatioLimit
from benchmarks.remat.inputs import BUDGETS, NO_CHECKPOINT, POLICIES, depth_of
from benchmarks.remat.models import MODELS

HERE = "benchmarks.remat"
LOOPS = ("transformer", "lstm", "neural_ode")
"""The models whose blocks a loop runs."""

SAME = "a checkpoint of each block, same policy"
DEFAULT = "bytes that the default saves, models with loops"
STAGING = "trace, lower and compile a checkpointed 12-layer scan"
PLANNING = "plan a jaxpr of 5,000 equations"
EQUATIONS = 5_000
SLOW: dict[str, Any] = {"cap": 60.0, "seconds": 30.0, "rtol": 1e-3}
"""How patient a case is, and how exact."""


def policy_case(model: str, policy: str) -> Case:
    """A model with one policy for each of its blocks, or without a checkpoint."""
    options = {"model": model, "policy": policy}
    limits: list[Limit] = [
        RatioLimit("run", "jax", 1.0, SAME),
        RatioLimit("temp_bytes", "jax", 1.0, SAME),
    ]
    is_staged = model == "transformer" and policy != NO_CHECKPOINT
    if is_staged:
        limits.append(RatioLimit("staging", "jax", 1.0, STAGING))
    return Case(
        name=f"{policy}/{model}",
        sizes=(depth_of(model),),
        ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_models:build", options),
        peers=(Contender("jax", "jax", f"{HERE}.jax_models:build", options),),
        limits=tuple(limits),
        compiles=is_staged,
        **SLOW,
    )


def budget_case(model: str, budget: float) -> Case:
    """A model within a budget, beside itself without a checkpoint and with one that saves nothing of each block."""
    build = f"{HERE}.fiveloop_models:build"
    options = {"model": model, "budget": budget}
    peers = [
        Contender(f"ours, {policy}", "fiveloop", build, {"model": model, "policy": policy})
        for policy in (NO_CHECKPOINT, "nothing_saveable")
    ]
    return Case(
        name=f"budget {budget}/{model}",
        sizes=(depth_of(model),),
        ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_models:within", options),
        peers=tuple(peers),
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
    *(budget_case(model, budget) for model in MODELS for budget in BUDGETS),
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

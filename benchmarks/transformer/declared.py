"""A training step of the example's model at its default size, beside the same model in jax."""

from benchmarks.model import Benchmark, Case, Contender, RatioLimit
from benchmarks.transformer.inputs import NO_CHECKPOINT, POLICIES

HERE = "benchmarks.transformer"
DEFAULT_LAYERS, MANY_LAYERS = 4, 12
STEP = "training step at the default size, same policy"
LOWER = "trace and lower a 12-layer train step"


def jax_contender(name: str, policy: str, prevent_cse: bool) -> Contender:
    """jax, with or without the barriers that keep recomputation apart (they are not needed under scan)."""
    return Contender(
        name, "jax", f"{HERE}.jax_step:build", {"policy": policy, "prevent_cse": prevent_cse}
    )


def case(policy: str) -> Case:
    """The step under one policy."""
    peers = [jax_contender("jax", policy, False)]
    if policy != NO_CHECKPOINT:
        peers.append(jax_contender("jax barriers", policy, True))
    return Case(
        name=f"step/{policy}",
        sizes=(DEFAULT_LAYERS, MANY_LAYERS),
        ours=Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_step:build", {"policy": policy}),
        peers=tuple(peers),
        rtol=1e-3,
        cap=60.0,
        seconds=60.0,
        limits=(
            RatioLimit("run", "jax", 1.0, STEP, DEFAULT_LAYERS),
            RatioLimit("temp_bytes", "jax", 1.0, STEP, DEFAULT_LAYERS),
            RatioLimit("trace_lower", "jax", 0.5, STEP, DEFAULT_LAYERS),
            RatioLimit("trace_lower", "jax", 0.5, LOWER, MANY_LAYERS),
        ),
    )


BENCHMARK = Benchmark(
    "transformer",
    "loss and gradients of the character transformer, n layers, beside jax's scan and checkpoint",
    tuple(case(policy) for policy in (*POLICIES, NO_CHECKPOINT)),
)

"""Loops as planning makes them, beside the same loops without each of its steps, and with everything saved.

No planning step may make a loop slower than it is without that step. The cost models of planning are fitted to the
loops of `fitted`; those of `held_out` were set aside before.
"""

from benchmarks.model import Benchmark, Case, Contender, GrowthLimit, RatioLimit

ROW = "planning's defaults"
STEPS = "promote constants hoist fold carry scalars sink fuse branch unroll rows ranges passthrough".split()
CHOICES = (*(f"without {step}" for step in STEPS), "everything saved")

FITTED = {
    "both": """
        prefix_sum recurrence small_rnn rnn ctc edit_distance heat bodies lorenz adam four_nested
        power_iteration substitution elimination polynomial digital_filter lanes_in_groups
    """,
    "forward": """
        viterbi shortest_paths knapsack sieve histogram forward_over_forward training second_order
        functions_of_lanes arithmetic_of_lanes few_lanes three_pendulums
    """,
    "gradient": """
        gru hidden_markov checkpointed_bodies kalman lanes_of_scalars logistic_map online_softmax
        diagonal_states layers functions_in_a_chain soft_gates narrow_lstm
    """,
}
HELD_OUT = {
    "both": """
        random_field soft_warping jacobi pendulum momentum conjugate_gradients rotations chebyshev
        decaying_peak matrix_chain advantages inner_sums lanes_that_end branches_in_steps
    """,
    "forward": """
        alignment relaxation coins spikes walk life gibbs
    """,
    "gradient": """
        delta_rule gated_mean matrix_memory waves springs extended_kalman triangular_inverse
        changing_variance residual_layers convolutions experts couplings three_nested
    """,
}


BESIDE_JAX = {
    "ctc": 0.9,
    "viterbi": 0.9,
    "lanes": 0.9,
    "four_nested": 0.9,
    "adam": 0.9,
    "forward_over_forward": 1.0,
    "n_body": 0.9,
}
"""Loops by their most time beside jax."""


def row(name: str, at_most: float) -> Case:
    """One loop beside jax, with the planning that is the default."""
    ours, jax = (
        Contender(side, side, f"benchmarks.planning.{side}_rows:build", {"name": name})
        for side in ("fiveloop", "jax")
    )
    limits = (RatioLimit("run", "jax", at_most, f"{ROW}, beside jax"),)
    return Case(f"beside/{name}", (1,), ours, (jax,), limits=limits, rtol=1e-2, seconds=6.0)


def straight_line() -> Case:
    """160 scans, one after the other, whose compilation takes a time that is linear in their number."""
    title = "160 scans in a straight line"
    ours, jax = (
        Contender(side, side, f"benchmarks.planning.{side}_rows:build_straight_line")
        for side in ("fiveloop", "jax")
    )
    limits = (RatioLimit("staging", "jax", 1.0, title), GrowthLimit("staging", 1.2, title))
    return Case(
        "beside/straight_line",
        (40, 80, 160),
        ours,
        (jax,),
        limits=limits,
        compiles=True,
        seconds=6.0,
    )


def case(group: str, name: str, form: str) -> Case:
    """One loop or its gradient, beside itself by other choices."""

    def contender(choice: str) -> Contender:
        options = {"group": group, "name": name, "form": form, "choice": choice}
        return Contender(choice, "fiveloop", "benchmarks.planning.programs:build", options)

    return Case(
        f"{group}/{name}/{form}",
        (1,),
        contender("planned"),
        tuple(map(contender, CHOICES)),
        limits=tuple(RatioLimit("run", choice, 1.03, ROW) for choice in CHOICES),
        rtol=1e-3,
        seconds=6.0,
    )


def cases(group: str, names: dict[str, str]) -> tuple[Case, ...]:
    """All loops of a group."""
    forms = {"both": ("forward", "gradient"), "forward": ("forward",), "gradient": ("gradient",)}
    return tuple(
        case(group, name, form)
        for which, listed in names.items()
        for name in listed.split()
        for form in forms[which]
    )


BENCHMARK = Benchmark(
    "planning",
    "loops with each planning step on and off",
    (
        *(row(name, at_most) for name, at_most in BESIDE_JAX.items()),
        straight_line(),
        *cases("fitted", FITTED),
        *cases("held_out", HELD_OUT),
    ),
)

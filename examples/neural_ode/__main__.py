"""Run the example: `python -m neural_ode --help` tells what can be asked for."""

import json
import time
from collections.abc import Sequence

from .costs import Cost, compare_bounds
from .data import load_recording
from .evaluate import FreeRun, free_run
from .options import Options, parse_options
from .plots import draw_run
from .train import Fitted, fit


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, and print and write what came out."""
    begin = time.perf_counter()
    options = parse_options(arguments)
    recording = load_recording()
    fitted = fit(options, recording)
    run = free_run(fitted.params, recording, options.tolerance)
    costs = compare_bounds(fitted.params, recording, options)
    print(f"\n{run_text(run)}\n\n{cost_table(costs)}")
    write_results(options, fitted, run, costs)
    print(f"\n{time.perf_counter() - begin:.0f} seconds in all; results are in {options.out}")


def run_text(run: FreeRun) -> str:
    """Say how far the free solution is from the recording, and what its solver did."""
    kept, tried = run.sizes[run.is_kept], len(run.is_kept)
    solved, recorded = run.interval(run.solved), run.interval(run.recorded)
    return (
        f"solved {run.time[-1]:.0f} ms that were not fitted, from the first state alone:\n"
        f"  distance from the recording   {run.spread:6.1f} mV\n"
        f"  time between spikes           {solved:6.1f} ms, recorded {recorded:.1f} ms\n"
        f"  steps of the solver           {len(kept):6} kept, {tried - len(kept)} rejected, "
        f"from {kept.min():.2f} to {kept.max():.1f} ms"
    )


def cost_table(costs: Sequence[Cost]) -> str:
    """Show what the gradient costs under each bound of its memory."""
    lines = [f"{'gradient':20}{'temporary memory':>18}{'time':>10}{'difference':>14}"]
    for cost in costs:
        memory, milliseconds = cost.temporary_bytes / 1e3, cost.seconds * 1e3
        lines.append(
            f"{cost.bound:20}{memory:15,.0f} kB{milliseconds:7.1f} ms{cost.difference:14.1e}"
        )
    return "\n".join(lines)


def write_results(options: Options, fitted: Fitted, run: FreeRun, costs: Sequence[Cost]) -> None:
    """Write the numbers as JSON, and the picture."""
    options.out.mkdir(parents=True, exist_ok=True)
    record = {
        "options": {name: str(value) for name, value in vars(options).items()},
        "losses": fitted.losses,
        "most_solver_steps": fitted.most_steps,
        "seconds": fitted.seconds,
        "free_run_millivolts": run.spread,
        "spike_intervals_milliseconds": [run.interval(run.solved), run.interval(run.recorded)],
        "solver_steps": {"kept": int(run.is_kept.sum()), "rejected": int((~run.is_kept).sum())},
        "gradients": [vars(cost) for cost in costs],
    }
    (options.out / "run.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    if options.plot:
        title = f"A neural ODE of a spiking neuron, {run.spread:.1f} mV from {run.time[-1]:.0f} ms that it has not seen"
        draw_run(options.out / "run.png", run, fitted.losses, costs, title)


if __name__ == "__main__":
    main()

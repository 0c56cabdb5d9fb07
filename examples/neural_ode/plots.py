"""The picture of a run: the free solution beside the recording, the solver's steps, and what the gradient costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .costs import Cost
from .evaluate import FreeRun

INK, GREY, FAINT = "#22262b", "#6b7480", "#dfe3e8"
RECORDED, SOLVED, REJECTED = "#8fb4d9", "#c8442d", "#e0a030"
BOUND_COLOURS = ("#1f5fa8", "#2f9e77")
STYLE: Any = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_run(
    path: Path, run: FreeRun, losses: Sequence[float], costs: Sequence[Cost], title: str
) -> None:
    """Draw the four panels to a PNG file."""
    with matplotlib.rc_context(STYLE):
        # A figure of its own, without pyplot: no window system, nothing global.
        figure = Figure(figsize=(11.5, 7.2), layout="constrained", dpi=130)
        grid = figure.add_gridspec(3, 2, height_ratios=[1.5, 1.0, 1.1], width_ratios=[1.6, 1.0])
        top = figure.add_subplot(grid[0, :])
        draw_solution(top, run)
        draw_steps(figure.add_subplot(grid[1, :], sharex=top), run)
        draw_losses(figure.add_subplot(grid[2, 0]), losses)
        draw_costs(figure.add_subplot(grid[2, 1]), costs)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw_solution(axes: Axes, run: FreeRun) -> None:
    """Draw the recording, and the solution that never looks at it."""
    axes.plot(run.time, run.recorded, color=RECORDED, lw=2.2, label="recorded, not fitted")
    axes.plot(run.time, run.solved, color=SOLVED, lw=1.2, label="solved from the first state alone")
    axes.set_ylabel("potential, mV")
    axes.legend(frameon=False, loc="upper right", fontsize=9, ncols=2)
    axes.set_ylim(top=max(run.recorded.max(), run.solved.max()) + 14.0)


def draw_steps(axes: Axes, run: FreeRun) -> None:
    """Draw each step of the solver, at its size."""
    kept, rejected = run.is_kept, ~run.is_kept
    axes.plot(run.begins[kept], run.sizes[kept], ".", color=SOLVED, ms=3, label="kept")
    label = "tried and rejected"
    axes.plot(run.begins[rejected], run.sizes[rejected], "x", color=REJECTED, ms=4, label=label)
    scale_by_logarithm(axes, run.sizes)
    axes.set_ylabel("solver's step, ms")
    axes.set_xlabel("time, ms")
    axes.legend(frameon=False, loc="upper right", fontsize=9, ncols=2)


def draw_losses(axes: Axes, losses: Sequence[float]) -> None:
    """Draw the distance from the recording in each optimiser step."""
    spread = 20.0 * np.sqrt(np.asarray(losses))
    axes.plot(np.arange(1, len(spread) + 1), spread, color=RECORDED, lw=0.8)
    window = max(1, len(spread) // 40)
    means = np.convolve(spread, np.full(window, 1.0 / window), "valid")
    axes.plot(np.arange(window, len(spread) + 1), means, color=INK, lw=1.5)
    scale_by_logarithm(axes, spread)
    axes.set_xlabel("optimiser step; longer segments after the first part")
    axes.set_ylabel("distance, mV")


def scale_by_logarithm(axes: Axes, values: npt.NDArray[np.float64]) -> None:
    """Give an axis a logarithmic scale, with plain numbers at 1, 2, 5, 10 and so on."""
    axes.set_yscale("log")
    ticks = [digit * 10.0**power for power in range(-4, 5) for digit in (1, 2, 5)]
    inside = [t for t in ticks if values.min() <= t <= values.max()]
    axes.set_yticks(inside, [f"{t:g}" for t in inside])
    axes.minorticks_off()


def draw_costs(axes: Axes, costs: Sequence[Cost]) -> None:
    """Draw the temporary memory of the gradient, one bar for each bound."""
    kilobytes = [cost.temporary_bytes / 1e3 for cost in costs]
    bars = axes.barh([cost.bound for cost in costs], kilobytes, color=BOUND_COLOURS, height=0.55)
    for bar, cost in zip(bars, costs, strict=True):
        text = f"{cost.temporary_bytes / 1e3:,.0f} kB, {cost.seconds * 1e3:.1f} ms"
        place = (bar.get_width(), bar.get_y() + bar.get_height() / 2.0)
        axes.annotate(
            text, place, xytext=(5, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.set_xlim(0.0, 1.6 * max(kilobytes))
    axes.invert_yaxis()
    axes.set_xlabel("temporary memory of the gradient, kB")

"""The picture of a run: how the loss fell, and what memory costs in time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, GREY, FAINT = "#22262b", "#6b7480", "#dfe3e8"
TRAIN, HELD_OUT = "#8fb4d9", "#c8442d"
BUDGET_COLOURS = ("#22262b", "#e0a030", "#8a5fb5")
POLICY_COLOURS = ("#1f5fa8", "#2f9e77", "#c8442d", "#8a5fb5")


@dataclass(frozen=True)
class Curve:
    """The loss in nats per character: of each step's batch, and of some held-out text after some steps."""

    train: Sequence[float]
    held_out: Mapping[int, float]


@dataclass(frozen=True)
class PolicyCost:
    """What a training step costs under a policy, or within a budget."""

    policy: str
    temporary_bytes: int
    seconds: float
    is_budget: bool = False

    @property
    def figures(self) -> str:
        """Memory and time, to be read."""
        megabytes = self.temporary_bytes / 1e6
        digits = 0 if megabytes >= 10.0 else 1
        return f"{megabytes:.{digits}f} MB, {self.seconds * 1e3:.0f} ms"


def draw_run(
    path: Path,
    curve: Curve,
    loss: float,
    ngrams: Mapping[int, float],
    costs: Sequence[PolicyCost],
    title: str,
) -> None:
    """Draw the loss curve and, where there are any, the costs of the policies, to a PNG file.

    `loss` is that of the trained model on all held-out text.
    """
    with matplotlib.rc_context(
        {
            "font.size": 10,
            "text.color": INK,
            "axes.edgecolor": GREY,
            "axes.labelcolor": INK,
            "xtick.color": GREY,
            "ytick.color": GREY,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    ):
        # A figure of its own, without pyplot: no window system, nothing global.
        figure = Figure(figsize=(11.5 if costs else 7.0, 4.6), layout="constrained", dpi=150)
        ratios = [1.45, 1.0] if costs else [1.0]
        panels = figure.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
        draw_curve(panels[0], curve, loss, ngrams)
        if costs:
            draw_costs(panels[1], costs)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw_curve(axes: Axes, curve: Curve, loss: float, ngrams: Mapping[int, float]) -> None:
    """Draw train and held-out loss over steps, with a line for each n-gram model."""
    steps = np.arange(1, len(curve.train) + 1)
    axes.plot(steps, curve.train, color=TRAIN, alpha=0.35, lw=0.8)
    axes.plot(steps, smoothed(curve.train), color=TRAIN, lw=1.8, label="train, smoothed")
    axes.plot(
        list(curve.held_out),
        list(curve.held_out.values()),
        color=HELD_OUT,
        marker="o",
        ms=3.5,
        lw=1.5,
        label="some held-out text",
    )
    for order, nats in ngrams.items():
        axes.axhline(nats, color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=0)
        axes.annotate(
            f"{order}-gram  {nats:.2f}",
            (1.0, nats),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=GREY,
        )
    lowest = min([loss, *ngrams.values(), *curve.held_out.values(), min(smoothed(curve.train))])
    highest = max([loss, *ngrams.values(), *curve.held_out.values()])
    axes.set_ylim(lowest - 0.15, highest + 0.35)
    axes.set_xlim(0, len(curve.train))
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats per character")
    axes.set_title("How the loss fell", loc="left", fontsize=10.5)
    axes.plot(
        [len(curve.train)],
        [loss],
        color=HELD_OUT,
        marker="D",
        ms=6,
        lw=0.0,
        clip_on=False,
        zorder=3,
        label="all held-out text",
    )
    axes.annotate(
        f"{loss:.2f}",
        (len(curve.train), loss),
        xytext=(-4, 9),
        textcoords="offset points",
        ha="right",
        fontsize=10,
        fontweight="bold",
        color=HELD_OUT,
    )
    axes.legend(frameon=False, loc="upper center", fontsize=9)


def smoothed(losses: Sequence[float], half_life: float = 4.0) -> npt.NDArray[np.float64]:
    """Give the running mean of the losses, the recent ones weighing most."""
    keep = 0.5 ** (1.0 / half_life)
    total, weight, means = 0.0, 0.0, []
    for loss in losses:
        total, weight = keep * total + loss, keep * weight + 1.0
        means.append(total / weight)
    return np.array(means)


def draw_costs(axes: Axes, costs: Sequence[PolicyCost]) -> None:
    """Draw each policy as a dot and each budget as a square: temporary memory across, time of a step up."""
    points = [(cost, cost.temporary_bytes / 1e6, cost.seconds * 1e3) for cost in costs]
    named = [point for point in points if not point[0].is_budget]
    axes.plot([x for _, x, _ in named], [y for _, _, y in named], color=FAINT, lw=2.0, zorder=1)
    right, top = max(x for _, x, _ in points) * 1.08, max(y for _, _, y in points) * 1.25
    # Named in a legend: policies that lead to the same plan lie on each other, and so would their labels.
    for i, (cost, x, y) in enumerate(named):
        label = f"{cost.policy.replace('_saveable', '').replace('_', ' ')}: {cost.figures}"
        size = max(130 - 30 * i, 40)
        colour = POLICY_COLOURS[i % len(POLICY_COLOURS)]
        axes.scatter([x], [y], s=size, color=colour, zorder=2, label=label)
    for i, (cost, x, y) in enumerate(point for point in points if point[0].is_budget):
        label = f"budget {cost.policy}: {cost.figures}"
        size = 60 - 16 * i
        axes.scatter(
            [x], [y], s=size, marker="s", color=BUDGET_COLOURS[i % 3], zorder=3, label=label
        )
    axes.legend(frameon=False, loc="best", fontsize=9)
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    axes.grid(color=FAINT, lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("temporary memory of the compiled step, MB")
    axes.set_ylabel("time of a step, ms")
    axes.set_title("What each policy and budget costs", loc="left", fontsize=10.5)

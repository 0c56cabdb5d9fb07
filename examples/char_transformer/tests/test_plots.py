"""The picture: it is written, whatever was measured."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from char_transformer.plots import Curve, PolicyCost, draw_costs, draw_curve, draw_run, smoothed
from matplotlib.figure import Figure
from matplotlib.image import imread

CURVE = Curve([4.0, 3.0, 2.5, 2.2], {0: 4.6, 2: 2.9, 4: 2.3})
NGRAMS = {1: 3.2, 2: 2.5, 3: 1.8}
COSTS = [
    PolicyCost("everything_saveable", 3 << 20, 0.2),
    PolicyCost("nothing_saveable", 1 << 20, 0.3),
]


@pytest.mark.parametrize("costs", [COSTS, []])
def test_a_picture_is_written_with_and_without_costs(
    tmp_path: Path, costs: Sequence[PolicyCost]
) -> None:
    path = tmp_path / "new folder" / "run.png"
    draw_run(path, CURVE, 2.35, NGRAMS, costs, "a title")
    height, width = imread(path).shape[:2]
    assert (height, width) == (690, 1725 if costs else 1050)


def test_the_curve_panel_shows_each_ngram_model_and_the_final_held_out_loss() -> None:
    axes = Figure().subplots()
    draw_curve(axes, CURVE, 2.35, NGRAMS)
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["1-gram  3.20", "2-gram  2.50", "3-gram  1.80", "2.35"]


def test_the_cost_panel_names_policies_and_budgets_in_a_legend_also_where_they_cost_the_same() -> (
    None
):
    axes = Figure().subplots()
    same = replace(COSTS[0], policy="dots_saveable")
    draw_costs(axes, [*COSTS, same, PolicyCost("24MB", 2 << 20, 0.25, is_budget=True)])
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "everything: 3.1 MB, 200 ms",
        "nothing: 1.0 MB, 300 ms",
        "dots: 3.1 MB, 200 ms",
        "budget 24MB: 2.1 MB, 250 ms",
    ]
    assert not axes.texts


def test_smoothing_keeps_a_constant_and_follows_a_step() -> None:
    assert smoothed([2.0] * 5).tolist() == pytest.approx([2.0] * 5)
    means = smoothed([0.0] * 50 + [1.0] * 4)
    assert means[-1] == pytest.approx(0.5, abs=0.02)

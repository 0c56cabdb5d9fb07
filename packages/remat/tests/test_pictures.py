"""Pictures of memory over time, and of memory against time: what is written in them, and where."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.remat import ResidualExplanation, checkpoint, explain_residuals, pareto
from fiveloop.remat.budget.amount import BYTES, TIMES, shown
from fiveloop.remat.explain import picture
from fiveloop.testing.core.misuse import assert_misuse

X = np.ones((32, 32), np.float32)


def chain(x: Any) -> Any:
    for _ in range(8):
        x = fnp.sin(x @ x)
    return x.sum()


@cache
def half() -> ResidualExplanation:
    return explain_residuals(checkpoint(chain, budget=0.5), X)


def words_of(drawn: str) -> list[str]:
    """What is written in a picture."""
    found = ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return [text.text or "" for text in found]


def test_pictures_are_svg(tmp_path: Path) -> None:
    told = explain_residuals(chain, X)
    for drawn in told, told.compare(half()):
        path = tmp_path / "memory.svg"
        assert drawn.plot(path) == path.read_text(encoding="utf-8") == drawn._repr_svg_()
        assert "Temporary memory of chain" in words_of(drawn.plot())
    with pytest.raises(ValueError, match=r"plot: path must end with .svg.*memory.png"):
        told.plot(tmp_path / "memory.png")
    missing = str(tmp_path / "none" / "memory.svg")
    assert_misuse(
        lambda: told.plot(missing),
        FileNotFoundError,
        "[Errno 2] plot: path must be that of a file that can be written, got "
        f"{missing!r} (No such file or directory)",
    )
    with pytest.raises(TypeError, match=r"plot: path must be a str .* got 3 of type int"):
        told.plot(3)  # type: ignore[arg-type]  # that is the point


def drawn_points(points: list[tuple[float, float, str, str]]) -> picture.Picture:
    drawn = picture.Picture("", picture.Axis("", 100, ()), picture.Axis("", 100, ()))
    drawn.points(points)
    return drawn


CROWDED = {
    "close together": [
        (40.0, 50.0, "the first of three", "red"),
        (40.0, 52.0, "the second of three", "red"),
        (80.0, 51.0, "a third that ends far to the right", "red"),
        (40.0, 90.0, "one that is high above", "red"),
        (10.0, 20.0, "one with a dot in its way", "red"),
        (14.0, 20.0, "another", "red"),
    ],
    "all at one place": [(95.0, 97.0, f"budget {k}", "blue") for k in range(40)],
    "at the corners": [
        (x, y, "save_only_these_names('a name', 'another') | dots_saveable", "red")
        for x in (0.0, 91.0)
        for y in (0.0, 91.0)
        for _ in range(3)
    ],
    "many budgets": [(50.0 + k, 50.0 - k / 9, f"{k / 40}", "blue") for k in range(41)],
}


@pytest.mark.parametrize("points", CROWDED.values(), ids=CROWDED)
def test_notes_beside_points_do_not_overlap_and_stay_within_the_picture(points: Any) -> None:
    drawn = drawn_points(points)
    notes = drawn.notes[len(points) :]
    assert len(notes) == len(points)
    for start, end, low in notes:
        assert start > picture.LEFT and end <= picture.WIDTH
        assert low - 6 >= picture.TOP and low < picture.HEIGHT - picture.BOTTOM
        for left, right, level in drawn.notes:
            apart = abs(low - level) >= picture.LINE or end < left or right < start
            assert apart or (start, end, low) == (left, right, level)


def test_a_note_with_a_dot_on_its_right_is_on_the_left() -> None:
    drawn = drawn_points([(40, 50, "0.1", "blue"), (42, 51, "0.2", "blue")])
    _, _, (left, right, _), (follows, _, _) = drawn.notes
    assert left < right < drawn.place(40, 50)[0]
    assert follows > drawn.place(42, 51)[0]
    assert "stroke" not in drawn.parts[-1], "no note needs a line to its dot"


@pytest.mark.parametrize(
    ("most", "units", "ticks"),
    [
        (40 * 1024, BYTES, ["0", "10 KiB", "20 KiB", "30 KiB", "40 KiB"]),
        (0, BYTES, ["0"]),
        (2**20 - 1, BYTES, ["0", "500 KiB", "1000 KiB"]),
        (5 * 2**40, BYTES, ["0", "2000 GiB", "4000 GiB"]),
        (1.04e4, TIMES, ["0", "5 s", "10 s"]),
        (1.63e-4, TIMES, ["0", "50 ns", "100 ns", "150 ns"]),
        (0.1, TIMES, ["0", "20 µs", "40 µs", "60 µs", "80 µs", "100 µs"]),
    ],
)
def test_marks_of_an_axis_are_round_numbers(most: float, units: Any, ticks: list[str]) -> None:
    axis = picture.axis("", most, units)
    assert [words for _, words in axis.ticks] == ticks
    assert all(0 <= value <= axis.limit for value, _ in axis.ticks)


def test_titles_and_legends_stay_within_the_picture() -> None:
    def long(x: Any) -> Any:
        return fnp.sin(x)

    long.__name__ = "a_long_name_of_a_function_" * 9
    told = explain_residuals(long, X)
    title, *_ = (w for w in words_of(told.plot()) if w.startswith("Temporary"))
    assert len(title) <= 75 and title.endswith("…")
    drawn = told.compare(explain_residuals(chain, X), names=("first " * 9, "b")).plot()
    assert f"{('first ' * 9)[:23]}…, peak 0 B" in words_of(drawn)


def test_the_timeline_marks_the_budget_of_a_plan() -> None:
    told, plain = half(), explain_residuals(chain, X)
    (choice,) = told.choices
    line = f"budget 50%, {shown(choice.allowed)}"
    assert choice.least < told.peak <= choice.allowed < choice.everything
    assert line in words_of(told.plot()) and told.plot().count("stroke-dasharray") == 2
    assert plain.plot().count("stroke-dasharray") == 1
    assert line in words_of(plain.compare(told).plot())
    roomy = explain_residuals(checkpoint(chain, budget="1 GB"), X)
    assert "budget 1 GB, above this picture" in words_of(roomy.plot())
    assert roomy.plot().count("stroke-dasharray") == 1


def test_pictures_name_their_axes_and_take_functions_that_need_no_memory() -> None:
    for drawn, title in (
        (explain_residuals(lambda x: x * 2.0, X).plot(), "temporary memory"),
        (pareto(lambda x: x * 2.0, X).plot(), "estimated time"),
    ):
        words = words_of(drawn)
        assert title in words
        assert "0" in words


def test_the_legend_of_a_difference_has_the_names_of_its_sides() -> None:
    plain = explain_residuals(chain, X)
    drawn = plain.compare(half(), names=("as it was", "lean & small")).plot()
    peaks = shown(plain.peak), shown(half().peak)
    assert {f"as it was, peak {peaks[0]}", f"lean & small, peak {peaks[1]}"} <= {*words_of(drawn)}

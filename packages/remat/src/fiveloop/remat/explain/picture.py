"""Pictures as SVG text: areas and points over two axes; and the base of reports that have one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

from fiveloop.core import errors, ir, trace
from fiveloop.core.backend import lazy
from fiveloop.core.dataclass import dataclass, field
from fiveloop.remat.budget.amount import Units, unit_of
from fiveloop.remat.explain.table import cut

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 88, 16, 36, 44
SIZE, TITLE = 11, 13
"""The sizes of letters, and of those of the title."""
LETTER, LINE, GAP, APART = 6, 13, 9, 4
"""The width of a letter of a note, the height of a line, how far a note is from the middle of its dot, and how far
two notes are from each other at least.
"""
LONGEST, ROW = 40, 24
"""The most letters of a note beside a dot; how far apart the places are where a note may begin that has none beside."""
COLOURS = ("#1b6ac9", "#c9461b", "#2d8a4e", "#8a5bc9", "#8a8a8a")


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers from 0 to `limit`, with a mark at each of `ticks`, as text."""

    title: str
    limit: float
    ticks: tuple[tuple[float, str], ...]


def axis(title: str, most: float, units: Units) -> Axis:
    """Numbers from 0 to a little more than `most`, with marks at round numbers of one of the units.

    >>> axis("memory", 3000, (("KiB", 1024), ("B", 1))).ticks
    ((0, '0'), (1024, '1 KiB'), (2048, '2 KiB'))
    """
    if not most:
        return Axis(title, 0, ((0, "0"),))
    unit, factor = unit_of(most, units)
    power = 10 ** math.floor(math.log10(most / factor))
    step = next(s for s in (0.2, 0.5, 1, 2, 5) if most <= s * power * factor * 5)
    marks = [k * step * power for k in range(1, 6)]
    ticks = [(m * factor, f"{m:g} {unit}") for m in marks if m * factor <= 1.05 * most]
    return Axis(title, most * 1.1, ((0, "0"), *ticks))


@dataclass(slots=True)
class Picture:
    """What is drawn, over two axes; `notes` are where there are dots and words: from x to x, on y."""

    title: str
    x: Axis
    y: Axis
    parts: list[str] = field(default_factory=list)
    notes: list[tuple[float, float, float]] = field(default_factory=list)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point lies."""
        across = (WIDTH - LEFT - RIGHT) * x / (self.x.limit or 1)
        up = (HEIGHT - TOP - BOTTOM) * y / (self.y.limit or 1)
        return LEFT + across, HEIGHT - BOTTOM - up

    def steps(self, heights: Sequence[float], colour: str, start: int = 0) -> None:
        """A line that stays at each height for one unit from `start` on, filled down to the axis."""
        if not heights:
            return
        path: list[tuple[float, float]] = []
        place = start
        for height, same in groupby(heights):
            after = place + len(list(same))
            path += [self.place(place, height), self.place(after, height)]
            place = after
        line = " L".join(f"{x:.1f},{y:.1f}" for x, y in path)
        base = self.place(0, 0)[1]
        closed = f"M{path[0][0]:.1f},{base:.1f} L{line} L{path[-1][0]:.1f},{base:.1f} Z"
        self.parts.append(f'<path d="{closed}" fill="{colour}" fill-opacity="0.35"/>')
        self.parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.4"/>')

    def level(self, y: float, note: str, colour: str = "#444") -> None:
        """A dashed line across, with a note at it; where it lies above the picture, a note at the top."""
        (start, height), (end, _) = self.place(0, y), self.place(self.x.limit, y)
        if y > self.y.limit:
            height, note = TOP, f"{note}, above this picture"
        else:
            self.parts.append(
                f'<path d="M{start:.1f},{height:.1f} L{end:.1f},{height:.1f}" stroke="{colour}" '
                'stroke-dasharray="5 4"/>'
            )
        wide = LETTER * len(note)
        ends = [end - wide - step * ROW for step in range(int((end - start - wide) / ROW))]
        places = [(left, height + down) for left in ends for down in (-5, LINE - 1)]
        self._write(note, places, colour)

    def points(self, found: Sequence[tuple[float, float, str, str]]) -> None:
        """Dots at x and y, each with a note in a colour: beside it if there is room, else near, with a line to it."""
        left: list[tuple[float, float, str, str]] = []
        dots = [(*self.place(x, y), cut(note, LONGEST), colour) for x, y, note, colour in found]
        self.notes += [(across - 4, across + 4, height + 4) for across, height, _, _ in dots]
        for across, height, note, colour in dots:
            self.parts.append(
                f'<circle cx="{across:.1f}" cy="{height:.1f}" r="4" fill="{colour}"/>'
            )
            if not self._write(note, _beside(across, height, LETTER * len(note)), colour):
                left.append((across, height, note, colour))
        for across, height, note, colour in left:
            if self._write(note, _around(across, height, LETTER * len(note)), colour):
                self._lead(across, height, colour)

    def _lead(self, across: float, height: float, colour: str) -> None:
        """A thin line from a dot to the note that was written last."""
        left, right, low = self.notes[-1]
        end = min(max(across, left), right), low + 3 if low < height else low - LINE + 4
        self.parts.append(
            f'<path d="M{across:.1f},{height:.1f} L{end[0]:.1f},{end[1]:.1f}" stroke="{colour}" '
            'stroke-opacity="0.4"/>'
        )

    def _write(self, note: str, places: Sequence[tuple[float, float]], colour: str) -> bool:
        """Write a note at the first place that is free and within the axes, if there is one; return whether."""
        wide = LETTER * len(note)
        for left, low in places:
            within = left > LEFT and left + wide <= WIDTH and low - LINE + 4 >= TOP - 2
            if within and low < HEIGHT - BOTTOM and not self._taken(left, left + wide, low):
                self.notes.append((left, left + wide, low))
                self.text(left, low, note, "start", colour=colour)
                return True
        return False

    def _taken(self, left: float, right: float, low: float) -> bool:
        return any(
            abs(low - other) < LINE and start < right + APART and left < end + APART
            for start, end, other in self.notes
        )

    def legend(self, notes: Sequence[tuple[str, str]]) -> None:
        """What colours mean, below the title."""
        x = LEFT
        for note, colour in notes:
            self.parts.append(
                f'<rect x="{x}" y="{TOP - 15}" width="10" height="10" fill="{colour}" fill-opacity="0.6"/>'
            )
            self.text(x + 15, TOP - 6, note, "start")
            x += max(150, 15 + LETTER * len(note) + 2 * GAP)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        anchor: str,
        size: int = SIZE,
        turn: int = 0,
        colour: str = "black",
    ) -> None:
        """Words at a place of the picture, turned by so many degrees."""
        escaped = lazy.html().escape(words)
        self.parts.append(
            f'<text transform="translate({x:.1f} {y:.1f}) rotate({turn})" font-size="{size}" '
            f'fill="{colour}" text-anchor="{anchor}">{escaped}</text>'
        )

    def svg(self) -> str:
        """The whole as SVG."""
        most = (WIDTH - LEFT - RIGHT) * SIZE // (LETTER * TITLE)
        self.text(LEFT, 14, cut(self.title, most), "start", TITLE)
        corner, end = (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM)
        self.parts.append(
            f'<path d="M{LEFT},{TOP} L{corner[0]},{corner[1]} L{end[0]},{end[1]}" fill="none" stroke="#222"/>'
        )
        for value, words in self.x.ticks:
            across, _ = self.place(value, 0)
            self.text(across, corner[1] + 15, words, "middle")
        for value, words in self.y.ticks:
            self.text(LEFT - 6, self.place(0, value)[1] + 4, words, "end")
        self.text((corner[0] + end[0]) / 2, HEIGHT - 10, self.x.title, "middle")
        self.text(16, (TOP + corner[1]) / 2, self.y.title, "middle", turn=-90)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
                f'height="{HEIGHT}" font-family="sans-serif">',
                '<rect width="100%" height="100%" fill="white"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def _beside(across: float, height: float, wide: float) -> list[tuple[float, float]]:
    """Places for a note right beside a dot: the left end, and the line that it stands on."""
    ends = across + GAP, across - GAP - wide
    return [(end, low) for low in (height - 5, height + LINE + 2) for end in ends]


def _around(across: float, height: float, wide: float) -> list[tuple[float, float]]:
    """Places for a note of a dot, the nearest first, and those above and below it before those at its sides."""
    shifts = [0, *[GAP + k * ROW for k in range(WIDTH // ROW)]]
    ends = [across + way for way in shifts] + [across - wide - way for way in shifts]
    lows = [height + LETTER + k * LINE for k in range(-HEIGHT // LINE, HEIGHT // LINE)]

    def distance(place: tuple[float, float]) -> float:
        end, low = place
        return math.hypot(3 * max(end - across, across - end - wide), low - LETTER - height)

    return sorted([(end, low) for low in lows for end in ends], key=distance)


class Report:
    """What has a table, data and a picture; it prints as its table."""

    def to_dict(self) -> dict[str, Any]:
        """The report as dictionaries, lists, strings and numbers."""
        raise TypeError(f"{type(self).__name__} has no data")

    def drawn(self) -> Picture:
        """The picture."""
        raise TypeError(f"{type(self).__name__} has no picture")

    def to_json(self, **how: Any) -> str:
        """`to_dict` as JSON; `how` goes to `json.dumps`."""
        return str(lazy.json().dumps(self.to_dict(), **how))

    @trace.boundary
    def plot(self, path: str | Path | None = None) -> str:
        """The report as an SVG picture; written to `path`, which ends with .svg, if it is given."""
        svg = self.drawn().svg()
        if path is not None:
            _write(svg, path)
        return svg

    def _repr_svg_(self) -> str:
        return self.plot()

    def __repr__(self) -> str:
        return str(self)


def _write(svg: str, path: object) -> None:
    """Write a picture to a file of type .svg."""
    if not isinstance(path, str | PathLike):
        raise TypeError(
            f"plot: path must be a str or a pathlib.Path that ends with .svg, got {path!r} of type "
            f"{type(path).__name__}"
        )
    if Path(path).suffix != ".svg":
        raise ValueError(f"plot: path must end with .svg, as pictures are SVG; got {str(path)!r}")
    try:
        Path(path).write_text(svg, encoding="utf-8")
    except OSError as error:
        raise OSError(
            error.errno,
            f"plot: path must be that of a file that can be written, got {str(path)!r} ({error.strerror})"
            f"{errors.at_source(ir.user_source())}",
        ) from None

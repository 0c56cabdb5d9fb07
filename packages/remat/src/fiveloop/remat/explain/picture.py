"""Pictures as SVG text: areas and points over two axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from os import PathLike
from pathlib import Path

from fiveloop.core.backend import lazy
from fiveloop.core.dataclass import dataclass, field

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 88, 16, 36, 44
LETTER, LINE, GAP = 6, 13, 7
"""The width of a letter of a note, the height of a line, and how far a note is beside its dot."""
COLOURS = ("#1b6ac9", "#c9461b", "#2d8a4e", "#8a5bc9", "#8a8a8a")


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers from 0 to `limit`, with a mark at each of `ticks`, as text."""

    title: str
    limit: float
    ticks: tuple[tuple[float, str], ...]


def axis(title: str, most: float, words: Callable[[float], str]) -> Axis:
    """Numbers from 0 to a little more than `most`, with a mark at each quarter of it.

    >>> axis("time", 2.0, str).ticks
    ((0.0, '0.0'), (0.5, '0.5'), (1.0, '1.0'), (1.5, '1.5'), (2.0, '2.0'))
    """
    marks = {words(most * k / 4): most * k / 4 for k in range(5)}
    return Axis(title, most * 1.1, tuple((value, mark) for mark, value in marks.items()))


@dataclass(slots=True)
class Picture:
    """What is drawn, over two axes; `notes` are where there are words beside points: from x to x, at y."""

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

    def level(self, y: float, note: str) -> None:
        """A dashed line across, with a note above it."""
        (start, height), (end, _) = self.place(0, y), self.place(self.x.limit, y)
        self.parts.append(
            f'<path d="M{start:.1f},{height:.1f} L{end:.1f},{height:.1f}" stroke="#444" '
            'stroke-dasharray="5 4"/>'
        )
        self.text(end, height - 5, note, "end")

    def points(self, found: Sequence[tuple[float, float, str, str]]) -> None:
        """Dots at x and y, each with a note in a colour: on its upper right if there is room, else on its lower left,
        else below the notes and dots that are there.
        """
        places = [self.place(x, y) for x, y, _, _ in found]
        dots = [(across - 4, across + 4, height + 4) for across, height in places]
        for (across, height), (_, _, note, colour) in zip(places, found, strict=True):
            self.parts.append(
                f'<circle cx="{across:.1f}" cy="{height:.1f}" r="4" fill="{colour}"/>'
            )
            self._note(note, across, height - 5, dots, colour)

    def _note(
        self,
        note: str,
        across: float,
        height: float,
        dots: Sequence[tuple[float, float, float]],
        colour: str,
    ) -> None:
        width = LETTER * len(note)
        right, low = across <= 0.7 * WIDTH, height + 2 * GAP + LETTER

        def taken(left: float, height: float) -> bool:
            return any(
                abs(height - other) < LINE and start < left + width and left < end
                for start, end, other in (*dots, *self.notes)
            )

        beside = {True: across + GAP, False: across - GAP - width}
        if right and taken(beside[True], height) and across - GAP - width > LEFT:
            right, height = (False, low) if not taken(beside[False], low) else (True, height)
        left = beside[right]
        while taken(left, height):
            height += LINE
        self.notes.append((left, left + width, height))
        side = "start" if right else "end"
        self.text(across + (GAP if right else -GAP), height, note, side, colour=colour)

    def legend(self, notes: Sequence[tuple[str, str]]) -> None:
        """What colours mean, below the title."""
        for k, (note, colour) in enumerate(notes):
            x = LEFT + 150 * k
            self.parts.append(
                f'<rect x="{x}" y="{TOP - 15}" width="10" height="10" fill="{colour}" fill-opacity="0.6"/>'
            )
            self.text(x + 15, TOP - 6, note, "start")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        anchor: str,
        size: int = 11,
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
        self.text(LEFT, 14, self.title, "start", 13)
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


def written(svg: str, path: str | Path | None, where: str) -> str:
    """The picture; written to a file of type .svg, if one is given."""
    if path is not None:
        if not isinstance(path, str | PathLike):
            raise TypeError(
                f"{where}: path must be a str or a pathlib.Path that ends with .svg, got {path!r} of type "
                f"{type(path).__name__}"
            )
        if Path(path).suffix != ".svg":
            raise ValueError(
                f"{where}: path must end with .svg, as pictures are SVG; got {str(path)!r}"
            )
        Path(path).write_text(svg, encoding="utf-8")
    return svg

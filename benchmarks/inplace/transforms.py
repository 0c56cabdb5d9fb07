"""Primal, gradient and jvp of gradient of a loop, in terms of whichever library runs it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.inplace.inputs import needed, shapes
from benchmarks.model import Program

Data = Mapping[str, Any]
Loop = Callable[[Any, Data], Any]


@dataclass(frozen=True)
class Library:
    """The functions of a library that the transforms need."""

    grad: Callable[..., Callable[..., Any]]
    jvp: Callable[..., tuple[Any, Any]]
    sum: Callable[[Any], Any]


def program(library: Library, run: Loop, loop: str, transform: str, size: int) -> Program:
    """One transform of one loop; what is differentiated is half the weighted sum of squares of its result."""

    def slope(data: Data) -> Callable[[Any], Any]:
        def half_squares(x: Any) -> Any:
            y = run(x, data)
            return library.sum(data["w"] * y * y) * 0.5

        return library.grad(half_squares)

    def primal(data: Data) -> dict[str, Any]:
        return {"y": run(data["x"], data)}

    def gradient(data: Data) -> dict[str, Any]:
        return {"x_bar": slope(data)(data["x"])}

    def jvp_of_gradient(data: Data) -> dict[str, Any]:
        x_bar, x_bar_dot = library.jvp(slope(data), (data["x"],), (data["v"],))
        return {"x_bar": x_bar, "x_bar_dot": x_bar_dot}

    transforms = {"primal": primal, "gradient": gradient, "jvp_of_gradient": jvp_of_gradient}
    return Program(transforms[transform], (needed(loop, transform, size),), shapes(loop, size))

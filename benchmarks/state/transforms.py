"""Five transforms of a loop, in terms of whichever library runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.inplace.transforms import Data, Library, Loop
from benchmarks.model import Program
from benchmarks.state.inputs import needed, shapes


@dataclass(frozen=True)
class Checkpointing(Library):
    """A library that can checkpoint."""

    checkpoint: Callable[..., Any]


def program(library: Checkpointing, run: Loop, loop: str, transform: str, size: int) -> Program:
    """One transform of one loop; what is differentiated is half the weighted sum of squares of its result."""

    def slope(data: Data, wrap: Callable[..., Any] = lambda f: f) -> Callable[[Any], Any]:
        def half_squares(x: Any) -> Any:
            y = wrap(lambda x: run(x, data))(x)
            return library.sum(data["w"] * y * y) * 0.5

        return library.grad(half_squares)

    def primal(data: Data) -> dict[str, Any]:
        return {"y": run(data["x"], data)}

    def jvp(data: Data) -> dict[str, Any]:
        y, y_dot = library.jvp(lambda x: run(x, data), (data["x"],), (data["v"],))
        return {"y": y, "y_dot": y_dot}

    def gradient(data: Data) -> dict[str, Any]:
        return {"x_bar": slope(data)(data["x"])}

    def jvp_of_gradient(data: Data) -> dict[str, Any]:
        x_bar, x_bar_dot = library.jvp(slope(data), (data["x"],), (data["v"],))
        return {"x_bar": x_bar, "x_bar_dot": x_bar_dot}

    def checkpoint(data: Data) -> dict[str, Any]:
        return {"x_bar": slope(data, library.checkpoint)(data["x"])}

    transforms = {
        "primal": primal,
        "jvp": jvp,
        "gradient": gradient,
        "jvp_of_gradient": jvp_of_gradient,
        "checkpoint": checkpoint,
    }
    return Program(transforms[transform], (needed(loop, transform, size),), shapes(loop, size))

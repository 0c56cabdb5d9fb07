"""A loop forward, on lanes, or its value and gradient, in terms of whichever library runs it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.model import Program
from benchmarks.while_loop.inputs import WRT, arguments

Data = Mapping[str, Any]
Loop = Callable[[Data], Any]


@dataclass(frozen=True)
class Library:
    """The functions of a library that the transforms need."""

    value_and_grad: Callable[..., Callable[..., Any]]
    vmap: Callable[..., Callable[..., Any]]
    sum: Callable[[Any], Any]


def program(library: Library, run: Loop, loop: str, transform: str, count: int) -> Program:
    """One transform of one loop; what is differentiated is half the weighted sum of squares of its result."""

    def forward(data: Data) -> dict[str, Any]:
        return {"y": run(data)}

    def lanes(data: Data) -> dict[str, Any]:
        lane = lambda x, limit: run({**data, "x": x, "limit": limit})
        return {"y": library.vmap(lane)(data["x"], data["limit"])}

    def gradient(data: Data) -> dict[str, Any]:
        def half_squares(chosen: Data) -> Any:
            y = run({**data, **chosen})
            return library.sum(data["w"] * y * y) * 0.5

        chosen = {name: data[name] for name in WRT[loop]}
        value, grads = library.value_and_grad(half_squares)(chosen)
        return {"value": value, **{f"{name}_bar": x for name, x in grads.items()}}

    fun = {"forward": forward, "lanes": lanes, "gradient": gradient}[transform]
    data = arguments(loop, count)
    shapes = (data["x"].shape,) if loop in ("chase", "heap") else ()
    return Program(fun, (data,), shapes)

"""A loop forward, or its gradient, in terms of whichever library runs it."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.inplace.transforms import Library
from benchmarks.loops.inputs import WRT, arguments, watched
from benchmarks.model import Program

Data = Mapping[str, Any]
Loop = Callable[[Data], Any]

TRANSFORMS = ("forward", "gradient")


def program(library: Library, run: Loop, loop: str, transform: str, size: int) -> Program:
    """One transform of one loop; what is differentiated is half the weighted sum of squares of its result."""

    def forward(data: Data) -> dict[str, Any]:
        return {"y": run(data)}

    def gradient(data: Data) -> dict[str, Any]:
        def half_squares(chosen: Data) -> Any:
            y = run({**data, **chosen})
            return library.sum(data["w"] * y * y) * 0.5

        grads = library.grad(half_squares)({name: data[name] for name in WRT[loop]})
        return {f"{name}_bar": grads[name] for name in WRT[loop]}

    data = arguments(loop, size)
    if transform == "forward":
        data.pop("w", None)
    fun = {"forward": forward, "gradient": gradient}[transform]
    return Program(fun, (data,), watched(loop, size))

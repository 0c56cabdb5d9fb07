"""A neural differential equation, solved by a thousand steps of a Runge-Kutta method."""

from typing import Any

from benchmarks.remat.models.base import KEPT, Draw, Library, Model, Sizes, Tree

SPAN = 5.0


def init(draw: Draw, size: Sizes) -> tuple[Tree, Tree]:
    """A network of two layers; starts and ends [batch, width], and as many zeros as there are steps."""
    width, hidden, shape = size["width"], size["hidden"], (size["batch"], size["width"])
    params = {
        "in": draw.matrix(width, hidden),
        "bias": draw.normal(hidden, scale=0.1),
        "out": draw.matrix(hidden, width),
    }
    times = (SPAN / size["steps"] * draw.near_one(size["steps"])).astype("float32")
    return params, {"start": draw.normal(*shape), "end": draw.normal(*shape), "times": times}


def loss(lib: Library, params: Tree, data: Tree) -> Any:
    """How far the solution ends from where it should."""

    def slope(y: Any) -> Any:
        hidden = lib.name(y @ params["in"] + params["bias"], KEPT)
        return lib.np.tanh(hidden) @ params["out"] - y

    def step(y: Any, dt: Any) -> tuple[Any, None]:
        k1 = slope(y)
        k2 = slope(y + 0.5 * dt * k1)
        k3 = slope(y + 0.5 * dt * k2)
        k4 = slope(y + dt * k3)
        return y + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

    y, _ = lib.scan(lib.block(step), data["start"], data["times"])
    return lib.np.mean((y - data["end"]) ** 2)


MODEL = Model(
    name="neural_ode",
    loss=loss,
    init=init,
    depth="steps",
    small={"steps": 20, "width": 3, "hidden": 8, "batch": 4},
    full={"steps": 1000, "width": 16, "hidden": 64, "batch": 64},
)

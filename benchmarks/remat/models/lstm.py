"""An LSTM over a sequence: a scan whose carry is small and whose steps are many."""

from typing import Any

from benchmarks.remat.models.base import KEPT, Draw, Library, Model, Sizes, Tree


def init(draw: Draw, size: Sizes) -> tuple[Tree, Tree]:
    """Matrices of the four gates; a sequence [steps, batch, width] and targets [batch, width]."""
    width, batch = size["width"], size["batch"]
    params = {
        "input": draw.matrix(width, 4 * width),
        "state": draw.matrix(width, 4 * width),
        "bias": draw.normal(4 * width, scale=0.1),
    }
    return params, {
        "sequence": draw.normal(size["steps"], batch, width),
        "target": draw.normal(batch, width),
    }


def loss(lib: Library, params: Tree, data: Tree) -> Any:
    """How far the last state is from its target."""

    def step(carry: Any, x: Any) -> tuple[Any, None]:
        h, c = carry
        gates = lib.name(x @ params["input"] + h @ params["state"] + params["bias"], KEPT)
        i, f, g, o = lib.np.split(gates, 4, axis=-1)
        c = lib.nn.sigmoid(f) * c + lib.nn.sigmoid(i) * lib.np.tanh(g)
        return (lib.nn.sigmoid(o) * lib.np.tanh(c), c), None

    start = lib.np.zeros_like(data["target"])
    (h, _), _ = lib.scan(lib.block(step), (start, start), data["sequence"])
    return lib.np.mean((h - data["target"]) ** 2)


MODEL = Model(
    name="lstm",
    loss=loss,
    init=init,
    depth="steps",
    small={"steps": 12, "width": 8, "batch": 3},
    full={"steps": 256, "width": 128, "batch": 32},
)

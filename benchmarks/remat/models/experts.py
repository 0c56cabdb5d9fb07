"""A mixture of experts: each token goes to the two experts that score highest, after an attention-free mixing."""

from typing import Any

from benchmarks.remat.models.base import KEPT, Draw, Library, Model, Sizes, Tree, normalised


def init(draw: Draw, size: Sizes) -> tuple[Tree, Tree]:
    """Scores and matrices of the experts; tokens and targets [tokens, width]."""
    width, hidden, experts = size["width"], size["hidden"], size["experts"]
    shape = (size["tokens"], width)
    params = {
        "scale": draw.near_one(width),
        "scores": draw.matrix(width, experts),
        "in": draw.matrix(experts, width, hidden),
        "gate": draw.matrix(experts, width, hidden),
        "out": draw.matrix(experts, hidden, width),
        "head": draw.matrix(width, width),
    }
    return params, {"tokens": draw.normal(*shape), "targets": draw.normal(*shape)}


def loss(lib: Library, params: Tree, data: Tree) -> Any:
    """The mean square of what is missed, and a price for experts that are used unevenly."""

    def layer(x: Any) -> tuple[Any, Any]:
        normal = normalised(lib.np, x, params["scale"])
        scores = normal @ params["scores"]
        second = lib.np.sort(scores, axis=-1)[:, -2:-1]
        weights = lib.nn.softmax(lib.np.where(scores >= second, scores, -1e9), axis=-1)
        gate = lib.nn.silu(lib.name(normal @ params["gate"], KEPT))
        hidden = gate * (normal @ params["in"])
        mixed = ((hidden @ params["out"]) * weights.T[..., None]).sum(axis=0)
        uses = lib.np.mean(lib.nn.softmax(scores, axis=-1), axis=0)
        return x + mixed, lib.np.sum(uses * uses)

    x, uneven = lib.block(layer)(data["tokens"])
    return lib.np.mean((x @ params["head"] - data["targets"]) ** 2) + 0.01 * uneven


MODEL = Model(
    name="experts",
    loss=loss,
    init=init,
    depth="experts",
    small={"tokens": 64, "width": 8, "hidden": 16, "experts": 4},
    full={"tokens": 512, "width": 128, "hidden": 256, "experts": 8},
)

"""A stack of residual blocks that mix places, then features; the stack is written out, without a loop."""

from typing import Any

from benchmarks.remat.models.base import KEPT, Draw, Library, Model, Sizes, Tree, normalised


def init(draw: Draw, size: Sizes) -> tuple[Tree, Tree]:
    """A list of blocks; patches [batch, places, width] and classes [batch]."""
    places, width, hidden = size["places"], size["width"], size["hidden"]
    scale = (2 * size["blocks"]) ** -0.5

    def block() -> Tree:
        return {
            "place_scale": draw.near_one(width),
            "place_in": draw.matrix(places, hidden),
            "place_out": draw.matrix(hidden, places, scale=scale),
            "feature_scale": draw.near_one(width),
            "feature_in": draw.matrix(width, hidden),
            "feature_out": draw.matrix(hidden, width, scale=scale),
        }

    params = {
        "blocks": [block() for _ in range(size["blocks"])],
        "out": draw.matrix(width, size["classes"]),
    }
    return params, {
        "patches": draw.normal(size["batch"], places, width),
        "classes": draw.below(size["classes"], size["batch"]),
    }


def loss(lib: Library, params: Tree, data: Tree) -> Any:
    """The mean loss in nats per picture."""

    def block(x: Any, p: Tree) -> Any:
        places = normalised(lib.np, x, p["place_scale"]).transpose(0, 2, 1) @ p["place_in"]
        x = x + (lib.nn.gelu(places) @ p["place_out"]).transpose(0, 2, 1)
        x = lib.name(x, KEPT)
        features = normalised(lib.np, x, p["feature_scale"]) @ p["feature_in"]
        return x + lib.nn.gelu(features) @ p["feature_out"]

    x = data["patches"]
    for p in params["blocks"]:
        x = lib.block(block)(x, p)
    scores = lib.nn.log_softmax(lib.np.mean(x, axis=1) @ params["out"], axis=-1)
    return -lib.np.mean(lib.np.take_along_axis(scores, data["classes"][:, None], axis=-1))


MODEL = Model(
    name="mixer",
    loss=loss,
    init=init,
    depth="blocks",
    small={"blocks": 6, "places": 16, "width": 16, "hidden": 32, "batch": 8, "classes": 5},
    full={"blocks": 24, "places": 64, "width": 128, "hidden": 256, "batch": 16, "classes": 10},
)

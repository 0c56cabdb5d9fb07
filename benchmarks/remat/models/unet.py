"""A U-shaped network over signals: each level hands its values across to the level of its size on the way up."""

from typing import Any

from benchmarks.remat.models.base import KEPT, Draw, Library, Model, Sizes, Tree, mixed_neighbours


def init(draw: Draw, size: Sizes) -> tuple[Tree, Tree]:
    """Levels, each twice as wide and half as long as the one before; signals [batch, places, width]."""
    width = size["width"]
    shape = (size["batch"], size["places"], width)

    def level(wide: int) -> Tree:
        return {
            "down": [draw.matrix(3 * wide, wide), draw.matrix(3 * wide, wide)],
            "narrow": draw.matrix(2 * wide, 2 * wide),
            "widen": draw.matrix(2 * wide, 2 * wide),
            "up": [draw.matrix(6 * wide, wide), draw.matrix(3 * wide, wide)],
        }

    levels = [level(width * 2**k) for k in range(size["levels"])]
    deep = width * 2 ** size["levels"]
    params = {
        "levels": levels,
        "bottom": draw.matrix(3 * deep, deep),
        "out": draw.matrix(width, width),
    }
    return params, {"signals": draw.normal(*shape), "targets": draw.normal(*shape)}


def loss(lib: Library, params: Tree, data: Tree) -> Any:
    """The mean square of what is missed."""

    def block(x: Any, ws: list[Any]) -> Any:
        for w in ws:
            x = lib.nn.silu(lib.name(mixed_neighbours(lib.np, x, w), KEPT))
        return x

    x, across = data["signals"], []
    for p in params["levels"]:
        x = lib.block(block)(x, p["down"])
        across.append(x)
        batch, places, width = x.shape
        x = x.reshape(batch, places // 2, 2 * width) @ p["narrow"]
    x = lib.block(block)(x, [params["bottom"]])
    for p, beside in zip(reversed(params["levels"]), reversed(across), strict=True):
        x = lib.np.concatenate([(x @ p["widen"]).reshape(beside.shape), beside], axis=-1)
        x = lib.block(block)(x, p["up"])
    return lib.np.mean((x @ params["out"] - data["targets"]) ** 2)


MODEL = Model(
    name="unet",
    loss=loss,
    init=init,
    depth="levels",
    small={"levels": 2, "places": 32, "width": 8, "batch": 8},
    full={"levels": 4, "places": 512, "width": 32, "batch": 16},
)

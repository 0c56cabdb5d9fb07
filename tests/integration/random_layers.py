"""Random loops whose steps run layers of a network on carried arrays; their gradients are read for copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit
from fiveloop.core.backend.gate import array_copies
from fiveloop.loops import for_loop, fori_loop, scan
from fiveloop.state import freeze, new_ref

NSTEPS = 40
FORMS = ("scan", "fori_loop", "for_loop")
ACTIVATIONS: tuple[Callable[[Any], Any], ...] = (
    fnp.tanh,
    fnp.sin,
    lambda x: x * x,
    lambda x: 1 / (1 + fnp.exp(-x)),
    lambda x: fnp.maximum(x, 0),
)
UPDATES = ("add", "scale", "set", "midpoint")
"""How a layer changes an array: "midpoint" runs it again on what half a step of the layer gives."""


@dataclass(frozen=True)
class Layer:
    """A layer that reads one of the carried arrays and updates one; with two hidden layers if it is `deep`."""

    source: int
    target: int
    weights: int
    first: int
    second: int
    update: str
    deep: bool


@dataclass(frozen=True)
class Network:
    """The layers of a step, the widths of the carried arrays, of a batch and of what is hidden."""

    form: str
    layers: tuple[Layer, ...]
    widths: tuple[int, ...]
    batch: int
    hidden: int
    reads: bool

    def shapes(self) -> dict[str, tuple[int, int]]:
        """The shapes of the weights: of two layers into and out of each array, and of one within."""
        found = {f"hidden {k}": (self.hidden, self.hidden) for k in range(len(self.widths))}
        for k, width in enumerate(self.widths):
            found |= {f"into {k} {n}": (self.hidden, width) for n in range(2)}
            found |= {f"from {k} {n}": (width, self.hidden) for n in range(2)}
        return found


def draw(seed: int) -> Network:
    """The network of a seed."""
    random = Random(seed)
    widths = tuple(random.choice([2, 4, 8, 16]) for _ in range(random.choice([1, 1, 2, 3])))

    def layer() -> Layer:
        source, target = random.randrange(len(widths)), random.randrange(len(widths))
        first, second = random.randrange(len(ACTIVATIONS)), random.randrange(len(ACTIVATIONS))
        update, deep = random.choice(UPDATES), random.random() < 0.5
        return Layer(source, target, random.randrange(2), first, second, update, deep)

    layers = tuple(layer() for _ in range(random.randint(1, 5)))
    sizes = random.choice([4, 8, 16, 32]), random.choice([8, 16, 32])
    return Network(random.choice(FORMS), layers, widths, *sizes, random.random() < 0.5)


def step(network: Network, weights: dict[str, Any], carry: list[Any]) -> list[Any]:
    """One step: the layers, one after the other."""
    carry = list(carry)
    for layer in network.layers:

        def run(x: Any, layer: Layer = layer) -> Any:
            hidden = ACTIVATIONS[layer.first](x @ weights[f"from {layer.source} {layer.weights}"])
            if layer.deep:
                hidden = ACTIVATIONS[layer.second](hidden @ weights[f"hidden {layer.source}"])
            return hidden @ weights[f"into {layer.target} {1 - layer.weights}"]

        source, target = carry[layer.source], carry[layer.target]
        found = run(source)
        if layer.update == "add":
            target = target + 0.1 * found
        elif layer.update == "scale":
            target = target * (1 + 0.1 * fnp.tanh(found))
        elif layer.update == "set":
            target = fnp.tanh(found)
        else:
            back = found @ weights[f"from {layer.target} {layer.weights}"]
            half = 0.05 * (back @ weights[f"into {layer.source} {layer.weights}"])
            target = target + 0.1 * run(source + half)
        carry[layer.target] = target
    return carry


def loss(network: Network, weights: dict[str, Any], carry: list[Any], xs: Any) -> Any:
    """The squares of what the loop gives, summed up; a step may read a row of `xs`."""

    def at(i: Any, carry: list[Any]) -> list[Any]:
        first, *rest = step(network, weights, carry)
        return [first + xs[i] if network.reads else first, *rest]

    if network.form == "for_loop":
        stack = new_ref(fnp.zeros(xs.shape, xs.dtype))

        def body(i: Any, refs: list[Any]) -> None:
            outs = at(i, [ref[...] for ref in refs])
            for ref, out in zip(refs, outs, strict=True):
                ref[...] = out
            stack[i] = outs[0]

        outs = [*for_loop(NSTEPS, body, carry), freeze(stack)]
    elif network.form == "fori_loop":
        outs = fori_loop(0, NSTEPS, at, carry)
    else:

        def scanned(carry: list[Any], i: Any) -> tuple[list[Any], Any]:
            outs = at(i, carry)
            return outs, outs[0].sum()

        outs, sums = scan(scanned, carry, fnp.arange(NSTEPS))
        outs = [*outs, sums]
    return sum((x**2).sum() for x in outs)


def assert_in_place(network: Network, seed: int = 0) -> None:
    """The gradient of a loop copies no array in a step; `seed` is for the numbers."""
    draws = np.random.default_rng(seed)

    def array(*shape: int) -> Any:
        return fnp.asarray(0.2 * draws.normal(size=shape).astype(np.float32))

    weights = {name: array(*shape) for name, shape in network.shapes().items()}
    carry = [array(network.batch, width) for width in network.widths]
    xs = array(NSTEPS, network.batch, network.widths[0])
    gradient = jit(grad(lambda weights, carry: loss(network, weights, carry, xs)))
    found = array_copies(gradient.lower(weights, carry).compile().as_text())
    assert not found, f"seed {seed}, {network}: copies {found}"

"""The models in torch, which saves activations within a budget: the plans that it makes, and one of them to run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._numpy as tnp
from torch._decomp import core_aten_decompositions
from torch._functorch import config
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule, Node
from torch.utils.flop_counter import flop_registry

from benchmarks.model import Plan, Program, Saving
from benchmarks.remat.inputs import BUDGETS, MIDDLE, layers_apart
from benchmarks.remat.models import MODELS
from benchmarks.remat.models.torch_library import LIBRARY
from benchmarks.sides.base import map_leaves


@dataclass
class Graphs:
    """The graphs of both passes, as torch hands them to a compiler; here they are run as they are."""

    forward: list[GraphModule] = field(default_factory=list)
    backward: list[GraphModule] = field(default_factory=list)

    def plan(self, flops_of_all: int) -> Plan:
        """What the forward pass saves that is no argument, and the operations beyond those without a budget."""
        return Plan(saved_bytes(self.forward[0]), self.flops - flops_of_all)

    @property
    def flops(self) -> int:
        """The operations of the matrix products of both passes."""
        return sum(products(graph) for graph in (self.forward[0], self.backward[0]))


def build(model: str, size: int) -> Program:
    """The loss and its gradient, within the middle budget."""
    params, data = map_leaves(whole_numbers, layers_apart(model, size))
    flops = graphs_of(model, 1.0, params, data)[1].flops
    found = {budget: graphs_of(model, budget, params, data) for budget in BUDGETS}
    return Program(
        found[MIDDLE][0],
        (params, data),
        saving=Saving(plans=tuple(graphs.plan(flops) for _, graphs in found.values())),
    )


def whole_numbers(x: Any) -> Any:
    """Integers as torch takes them for indices."""
    return x.astype("int64") if x.dtype.kind == "i" else x


def graphs_of(
    model: str, budget: float, params: Any, data: Any
) -> tuple[Callable[..., dict[str, Any]], Graphs]:
    """A function that gives the loss and the gradient, and the graphs of its two passes under a budget."""
    graphs = Graphs()

    def loss(params: Any, data: Any) -> torch.Tensor:
        arrays = map_leaves(tnp.asarray, (params, data))
        value: torch.Tensor = MODELS[model].loss(LIBRARY, *arrays).tensor
        return value

    planned = aot_function(
        loss,
        keeping(graphs.forward),
        keeping(graphs.backward),
        min_cut_rematerialization_partition,
        core_aten_decompositions(),
    )

    def step(params: Any, data: Any) -> dict[str, Any]:
        params = map_leaves(lambda x: x.detach().requires_grad_(), params)
        value = planned(params, data)
        value.backward()
        return {"loss": value.detach(), "grads": map_leaves(lambda x: x.grad, params)}

    with config.patch(activation_memory_budget=budget):
        step(*map_leaves(torch.from_numpy, (params, data)))
    return step, graphs


def keeping(graphs: list[GraphModule]) -> Callable[..., Any]:
    """A compiler that keeps the graph and runs it as it is."""

    def compiler(graph: GraphModule, examples: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    return compiler


def saved_bytes(forward: GraphModule) -> int:
    """The bytes of what a forward pass gives after the loss, but for its arguments."""
    (output,) = forward.graph.find_nodes(op="output")
    given = forward.graph.find_nodes(op="placeholder")
    saved = {x for x in output.args[0][1:] if isinstance(x, Node) and x not in given}
    values = [x.meta["val"] for x in saved]
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))


def products(module: GraphModule) -> int:
    """The operations of the products in a graph, by torch's own counts."""
    total = 0
    for node in module.graph.nodes:
        counted = flop_registry.get(getattr(node.target, "overloadpacket", None))
        if counted is not None:
            args = [x.meta["val"] if isinstance(x, Node) else x for x in node.args]
            total += counted(*args, out_val=node.meta["val"])
    return total

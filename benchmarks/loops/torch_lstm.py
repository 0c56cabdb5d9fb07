"""The LSTM in torch: its own module, with the weights of the others in the layout that it wants."""

from typing import Any

import torch

from benchmarks.loops.inputs import WIDTH, arguments
from benchmarks.model import Program


def module(data: dict[str, Any]) -> torch.nn.LSTM:
    """The module; it has two biases, and one of them stays zero."""
    cell = torch.nn.LSTM(WIDTH, WIDTH)
    given = {
        "weight_ih_l0": torch.from_numpy(data["wx"]).T,
        "weight_hh_l0": torch.from_numpy(data["wh"]).T,
        "bias_ih_l0": torch.from_numpy(data["b"]),
        "bias_hh_l0": torch.zeros(4 * WIDTH),
    }
    cell.load_state_dict(given)
    cell.bias_hh_l0.requires_grad_(False)
    return cell


def build(transform: str, size: int) -> Program:
    """The outputs of the LSTM, or the gradient of half the weighted sum of their squares."""
    data = arguments("lstm", size)
    cell = module(data)
    wanted = [cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0]

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            return {"y": cell(x)[0]}

    def gradient(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
        y = cell(x)[0]
        wx_bar, wh_bar, b_bar = torch.autograd.grad((w * y * y).sum() * 0.5, wanted)
        return {"wx_bar": wx_bar.T, "wh_bar": wh_bar.T, "b_bar": b_bar}

    if transform == "forward":
        return Program(forward, (data["x"],))
    return Program(gradient, (data["x"], data["w"]))

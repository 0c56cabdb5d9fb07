"""torch as a side: it runs op by op, so that nothing is lowered, compiled or planned."""

from typing import Any

import numpy as np
import torch

from benchmarks.model import Program
from benchmarks.sides.base import Ready, Staging, map_leaves, named


class TorchSide:
    """Runs a program on tensors, with as many threads as there are cores to run on."""

    def versions(self) -> dict[str, str]:
        """torch's version."""
        return {"torch": torch.__version__}

    def prepare(self, program: Program) -> Ready:
        """Make tensors of the arguments."""
        args = map_leaves(torch.from_numpy, program.args)

        def results() -> dict[str, np.ndarray]:
            leaves: dict[str, Any] = named(program.fun(*args))
            return {name: leaf.numpy() for name, leaf in leaves.items()}

        return Ready(lambda: program.fun(*args), results, None, None, None, None)

    def stage(self, program: Program, compiles: bool) -> Staging | None:
        """Nothing is lowered."""
        return None


SIDE = TorchSide()

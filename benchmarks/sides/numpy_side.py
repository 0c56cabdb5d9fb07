"""NumPy as a side: no compilation, only results to agree with."""

import numpy as np

from benchmarks.model import Program
from benchmarks.sides.base import Ready, Staging, named


class NumpySide:
    """Runs a program as plain Python."""

    def versions(self) -> dict[str, str]:
        """NumPy's version."""
        return {"numpy": np.__version__}

    def prepare(self, program: Program) -> Ready:
        """Nothing to prepare."""

        def results() -> dict[str, np.ndarray]:
            return {
                name: np.asarray(leaf) for name, leaf in named(program.fun(*program.args)).items()
            }

        return Ready(lambda: program.fun(*program.args), results, None, None, None, None)

    def stage(self, program: Program, compiles: bool) -> Staging | None:
        """NumPy lowers nothing."""
        return None


SIDE = NumpySide()

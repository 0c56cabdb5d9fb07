"""What a call costs beside jax: jitted functions of arrays, of NumPy arrays and of Python numbers."""

from benchmarks.core import calls
from benchmarks.model import Benchmark

BENCHMARK = Benchmark(
    "core",
    "calls of jitted functions",
    calls.CASES,
)

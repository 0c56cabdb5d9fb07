"""What a call costs beside jax: jitted functions of arrays, of NumPy arrays and of Python numbers; eager operations."""

from benchmarks.core import calls, eager
from benchmarks.model import Benchmark

BENCHMARK = Benchmark(
    "core",
    "calls of jitted functions, and eager operations",
    (*calls.CASES, *eager.CASES),
)

"""What calls, eager operations and starts of processes cost beside jax."""

from benchmarks.core import calls, eager, starts
from benchmarks.model import Benchmark

BENCHMARK = Benchmark(
    "core",
    "calls of jitted functions, eager operations, and starts of processes",
    (*calls.CASES, *eager.CASES, *starts.CASES),
)

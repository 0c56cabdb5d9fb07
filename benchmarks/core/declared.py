"""What calls, eager operations and starts of processes cost beside jax."""

from benchmarks.core import calls, eager, resident, starts
from benchmarks.model import Benchmark

BENCHMARK = Benchmark(
    "core",
    "calls of jitted functions, eager operations, starts of processes, and the memory of programs",
    (*calls.CASES, *eager.CASES, *starts.CASES, *resident.CASES),
)

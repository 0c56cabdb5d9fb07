"""A training step of the transformer at its default size, beside the same model in jax."""

from benchmarks.model import Benchmark

BENCHMARK = Benchmark("transformer", "a training step of the transformer beside jax", ())

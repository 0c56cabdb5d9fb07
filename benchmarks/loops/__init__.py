"""Loops that people write, each spelled for fiveloop, jax, NumPy and, for one of them, torch."""

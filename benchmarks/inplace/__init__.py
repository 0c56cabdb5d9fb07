"""The six in-place loops, each spelled for fiveloop, jax and NumPy, some of them in C."""

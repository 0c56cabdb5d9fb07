"""A training step of the example's transformer, in fiveloop and in jax."""

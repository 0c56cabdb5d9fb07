"""Side by side measurements of fiveloop and its peers; the only folder that may import `jax`."""

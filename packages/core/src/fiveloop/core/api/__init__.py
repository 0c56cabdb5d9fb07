"""The public functions: jit, derivatives, vmap, and inspection of programs."""

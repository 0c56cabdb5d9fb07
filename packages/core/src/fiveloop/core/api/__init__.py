"""What users call: jit, derivatives, vmap, and looking at programs."""

"""A character language model, trained with composed loops, Refs and checkpoints."""

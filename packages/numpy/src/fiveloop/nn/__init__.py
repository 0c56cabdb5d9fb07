"""Activations, norms and initialisers for neural networks."""

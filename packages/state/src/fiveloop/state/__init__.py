"""Mutable references, their effects, and discharge."""

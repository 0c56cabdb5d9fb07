"""Checkpoints by policies and by budgets: bytes and times of the gradients of seven models."""

"""Checks: predicates with a message, which raise an error when a call returns, or are returned as values."""

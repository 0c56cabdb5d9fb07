"""Checks: predicates with a message that become errors when a call returns, or values."""

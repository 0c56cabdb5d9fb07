"""Loops over mutable references, with derivatives that cost as much as the loop."""

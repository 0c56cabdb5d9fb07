"""Budgets: how they are written, and plans within them."""

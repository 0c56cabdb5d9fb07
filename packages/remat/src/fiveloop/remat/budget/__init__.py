"""Budgets: what they are written as, and the plans that keep within them."""

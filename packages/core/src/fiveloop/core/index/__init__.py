"""Indexing: `x[i]`, `x.at[i]`, and parts of Refs."""

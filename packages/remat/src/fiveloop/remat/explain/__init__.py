"""Explanations of residuals: what a derivative saves and why, over time, and compared with other policies."""

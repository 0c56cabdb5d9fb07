"""Calls of jitted functions, and eager operations."""

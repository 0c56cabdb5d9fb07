"""Operators, methods and ufuncs of arrays, made from primitives."""

"""`replay`: a counted loop and the backward pass over its steps; list this folder to read its row."""

from . import rules as rules

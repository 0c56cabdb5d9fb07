"""`while`: the loop that runs until a condition is false; list this folder to read its row."""

from .rules import while_bodies as while_bodies

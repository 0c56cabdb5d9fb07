"""`while`: a loop that ends when its condition does; list this folder to read its row."""

from .rules import while_bodies as while_bodies

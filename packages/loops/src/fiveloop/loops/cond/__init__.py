"""`cond`: one branch of several, by an index; list this folder to read its row."""

from .rules import cond_bodies as cond_bodies

"""`for`: the loop with a given number of steps and effects on Refs; list this folder to read its row."""

from . import rules as rules

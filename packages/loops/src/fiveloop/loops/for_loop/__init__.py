"""`for`: the loop. A body with effects on Refs, run a number of times; list this folder to read its row."""

from . import rules as rules

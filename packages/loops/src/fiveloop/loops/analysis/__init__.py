"""Analyses of a loop's body: its integers, the slots of its states, its arrays. They do not change the loop."""

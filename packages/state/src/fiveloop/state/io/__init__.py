"""Input and output: Python functions that a program calls while it runs, once for each time that it gets there."""

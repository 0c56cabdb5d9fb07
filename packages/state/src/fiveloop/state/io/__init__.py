"""Input and output: Python functions that a program calls while it runs, once each time it reaches the call."""

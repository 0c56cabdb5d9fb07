"""`explain`: what was done to each loop of a function, what was not, and why."""

"""`explain`: reports which planning steps were applied to each loop of a function, and why."""

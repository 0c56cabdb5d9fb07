"""Running a jaxpr on condition: the column, the engine, and the rules of what core and state have."""

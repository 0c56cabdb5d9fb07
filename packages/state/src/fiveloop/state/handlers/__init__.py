"""Effects without a position, each handled by giving it a Ref: the column, the engine, and the pass."""

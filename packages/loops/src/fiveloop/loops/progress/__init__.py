"""Progress of loops: a mark in the body, which the compiled loop shows as a bar."""

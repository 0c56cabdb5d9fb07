"""Progress of loops: an equation in the body, which the compiled loop shows as a bar."""

"""The base of fiveloop: programs as data, their transforms, and arrays."""

"""The primitives of loops: what their equations hold, and their types and effects. Their rules are the rows."""

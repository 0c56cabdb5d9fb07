"""The primitives of loops: params, types and effects. Their rules are in the folders of the rows."""

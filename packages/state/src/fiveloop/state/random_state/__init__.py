"""Random state: a Ref with a key and the number of keys made from it."""

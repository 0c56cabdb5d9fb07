"""Random state: a key and how many keys have been made of it, held in a Ref."""

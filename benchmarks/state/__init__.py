"""Ten loops that read, write, swap and accumulate single elements of Refs, in five transforms."""

"""The transforms: one engine a file; each reads its column."""

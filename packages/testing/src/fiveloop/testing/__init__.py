"""Tools for tests of programs and primitives: the oracle, laws, checks of derivatives, random programs."""

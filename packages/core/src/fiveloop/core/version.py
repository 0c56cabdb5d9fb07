"""The version of fiveloop: all packages are released together."""

__version__ = "0.1.0"

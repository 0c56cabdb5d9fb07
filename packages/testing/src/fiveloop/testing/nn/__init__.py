"""What tests of nn need: references of its primitives for the oracle."""

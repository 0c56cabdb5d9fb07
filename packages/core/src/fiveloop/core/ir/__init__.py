"""The IR: types, effects, jaxprs, and how they print."""

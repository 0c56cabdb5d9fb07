"""The laws, for functions with checkpoints: those of state, once the oracle knows the checkpoints."""

from fiveloop.state.testing.laws import check_function as check_function

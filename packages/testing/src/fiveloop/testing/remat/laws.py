"""The laws, for functions with checkpoints: those of state, once the oracle knows the checkpoints."""

from fiveloop.testing.state.laws import check_function as check_function

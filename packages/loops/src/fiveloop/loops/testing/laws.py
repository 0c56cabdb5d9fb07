"""The laws, for functions with loops: those of state, once the oracle knows the loops."""

from fiveloop.state.testing.laws import check_function as check_function

"""One module per side: how its functions are built, lowered, compiled, measured and called."""

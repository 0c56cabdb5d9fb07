"""What to save for the backward pass, and what to compute again."""

"""What a derivative saves and why, over time, beside another, and against what it costs."""

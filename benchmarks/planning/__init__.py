"""What planning's own choices cost: loops with each planning step on, off, and chosen by planning."""

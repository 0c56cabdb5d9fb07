"""What is known of a loop's body: its integers, the slots that it touches, its arrays. Nothing here changes a loop."""

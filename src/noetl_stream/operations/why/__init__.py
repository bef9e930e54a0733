"""``why``: what an execution waits for, or why it ended as it did."""

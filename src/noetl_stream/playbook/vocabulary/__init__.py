"""Names: valid, reserved, misplaced, and those of older dialects."""

"""Secret values: credentials, and what hides them in texts and URLs."""

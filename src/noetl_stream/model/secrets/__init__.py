"""Secret values: credentials, and their removal from texts and URLs."""

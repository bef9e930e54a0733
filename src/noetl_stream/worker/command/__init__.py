"""One run of one command, from its claim to its acknowledgement (PROTOCOL §3)."""

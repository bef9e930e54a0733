"""Commands about who may do what, and secrets."""

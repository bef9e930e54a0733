"""Commands that run roles."""

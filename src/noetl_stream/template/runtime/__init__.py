"""Rendering: scopes, the sandbox and cost limits."""

"""Rendering: scopes, the sandbox, and what a rendering may cost."""

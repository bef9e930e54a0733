"""Rewrites playbooks of older dialects to the present language (LANGUAGE §16)."""

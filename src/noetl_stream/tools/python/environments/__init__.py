"""Environments of playbooks: what a task requires, and the interpreters and packages that run it."""

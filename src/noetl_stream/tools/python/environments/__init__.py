"""Environments of playbooks: the requirements of tasks, and the interpreters and packages that run them."""

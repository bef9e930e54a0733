"""Example playbooks, and projects made from them."""

"""The workflow as a Petri net: what its steps can do together, found by exploring it."""

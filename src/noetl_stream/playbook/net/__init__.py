"""The workflow as a Petri net: its possible runs, found by exploring it."""

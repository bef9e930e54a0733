"""The command line: a file for a noun or for a few that belong together, no logic of its own."""

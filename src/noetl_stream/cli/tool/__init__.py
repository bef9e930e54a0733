"""``noetl-stream tool``: the kinds that are installed, and new ones."""

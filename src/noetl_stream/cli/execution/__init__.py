"""``noetl-stream run`` and ``noetl-stream execution``."""

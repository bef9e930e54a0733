"""``noetl-stream schedule`` and ``noetl-stream trigger``: what starts executions by itself."""

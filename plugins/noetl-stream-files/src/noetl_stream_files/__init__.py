"""``kind: files`` for noetl-stream."""

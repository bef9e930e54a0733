"""``noetl-stream deploy`` and ``noetl-stream pull``: a folder of documents, and the catalog."""

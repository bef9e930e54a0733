"""``noetl-stream deploy``: a folder of documents, and the catalog."""

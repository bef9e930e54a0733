"""Names: which may be given, which are reserved, which belong to older dialects."""

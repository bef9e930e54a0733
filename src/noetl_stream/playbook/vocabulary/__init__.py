"""Names of the language, and rejected keys with advice."""

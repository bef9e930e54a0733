"""The values that all packages exchange: facts, messages, ids, limits. Nothing here does IO or reads a clock."""

"""The values all other packages exchange: facts, messages, ids, limits. Nothing here does IO or reads a clock."""

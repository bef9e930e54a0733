"""The upkeep of the stores, which bounds their growth."""

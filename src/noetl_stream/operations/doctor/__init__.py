"""The diagnosis of a running system: faults, and their remedies."""

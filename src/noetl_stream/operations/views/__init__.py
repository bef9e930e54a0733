"""Past states of an execution: at a position of its journal, and over time."""

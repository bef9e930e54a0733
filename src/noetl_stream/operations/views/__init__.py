"""What an execution looked like: at a position of its journal, and over time."""

"""What clients saw of a system, as lines of JSON, and a checker that knows nothing of the system."""

"""From text to plan."""

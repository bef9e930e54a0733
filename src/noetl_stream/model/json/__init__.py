"""JSON text: its codec, depth and numbers, and the merging of its values."""

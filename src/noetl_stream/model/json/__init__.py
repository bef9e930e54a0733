"""JSON text: its codec, its depth, its numbers, how its values merge."""

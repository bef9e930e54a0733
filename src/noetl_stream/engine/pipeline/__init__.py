"""The worker's part of the engine: what a task's outcome leads to, local loops (LANGUAGE §5, §6)."""

"""Engine scenarios: given, when, then; no IO, no clock."""

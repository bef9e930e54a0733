"""Task and keychain kinds for the checker: inputs, knobs, helper blocks."""

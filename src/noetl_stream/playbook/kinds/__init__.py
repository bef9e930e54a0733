"""Task and keychain kinds as the checker sees them: inputs, knobs, helper blocks."""

"""Task and keychain kinds as the language sees them: inputs, knobs, helper blocks."""

"""JSON Schema (draft 2020-12) of the language."""

"""Shapes of answers: the schemas of the OpenAPI document."""

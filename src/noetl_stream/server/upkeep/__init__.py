"""Bounds the growth of the stores."""

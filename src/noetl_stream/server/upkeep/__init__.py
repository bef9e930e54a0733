"""Keeps the stores from growing for ever."""

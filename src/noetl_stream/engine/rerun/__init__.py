"""Reruns: what is reused of the original execution (LANGUAGE §9 *Rerun*)."""

"""Encryption of secrets: at rest, and sealed to one receiver in transit (LANGUAGE §11).

The cryptography library is imported on first use, since most processes never handle a secret.
"""

"""Encryption of secrets, at rest and in transit (LANGUAGE §11), of objects, and signatures (PROTOCOL §7).

The cryptography library is imported on first use, since most processes never handle a secret.
"""

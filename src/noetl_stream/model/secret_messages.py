"""How a worker asks for a secret and what a server answers: no plain value is ever in a message (LANGUAGE §11)."""

from __future__ import annotations

import msgspec


class SecretQuestion(msgspec.Struct, frozen=True):
    """Asks for a stored credential on behalf of an execution. ``public_key``: X25519, made for this question alone."""

    execution_id: str
    name: str
    public_key: bytes


class SecretAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value sealed to the question's key, or why there is none.

    Attributes:
        version: The stored version; 0 if no value is given.
        public_key: The server's, made for this answer alone.
        body: As :class:`noetl_stream.sealing.handover.Sealed` has it.
        refused: Why a stored value is not handed out; empty if the name is not stored.
        near: A stored name like the one that was asked for.
    """

    version: int = 0
    public_key: bytes = b""
    body: bytes = b""
    refused: str = ""
    near: str = ""


def subject_of(question: SecretQuestion, version: int) -> bytes:
    """What a sealed value is about: it opens for this execution, name and version only."""
    return f"{question.execution_id}\0{question.name}\0{version}".encode()

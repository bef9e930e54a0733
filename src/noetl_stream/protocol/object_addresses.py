"""Addresses of single objects, which servers sign for workers without a key of the bucket (PROTOCOL §3 *Object keys*).

An address grants access to its object, so answers are sealed with the key of the command's execution.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.model.messages import ShownCommand
from noetl_stream.sealing.data_references import DataReference, data_key_of, parts_of
from noetl_stream.sealing.keys import KeyRing, Unprinted, open_bytes, seal_bytes
from noetl_stream.sealing.objects import owner_of

MOST_ASKED: Final = 64
"""The maximum number of addresses in one question."""

_OF_A_RUN: Final = re.compile(r"[0-9]{1,9}\.[A-Za-z0-9_-]{1,64}/[0-9]{1,9}(/([0-9]{1,9}|head))?")

Addresses = Mapping[str, Sequence[str]]
"""The addresses of objects by key: one for each possible place, in order. ``nats`` stands for NATS."""


class AddressQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for addresses to read or write objects.

    Attributes:
        writes: Keys to write, with the prefix of one of the command's own runs.
        reads: Keys to read: objects of executions that the command reads, or parts of ``files``.
        files: References to files and tables, sealed for the command's execution.
    """

    command: ShownCommand
    writes: list[str] = []
    reads: list[str] = []
    files: list[DataReference] = []

    def refused(self, owners: Collection[str], ring: KeyRing) -> Iterator[str]:
        """The keys that the command has no right to.

        Args:
            owners: The executions and bundles whose objects the command reads.
            ring: The keys of the command's execution.
        """
        shown, prefixes = self.command, []
        own = f"{shown.execution_id}/{shown.command_id}/{shown.issue}."
        for file in self.files:
            parts = parts_of(file.key)
            if parts is not None and data_key_of(file, (ring,)) is not None:
                prefixes.append(parts.prefix)
        for key in self.writes:
            if not (key.startswith(own) and _OF_A_RUN.fullmatch(key.removeprefix(own))):
                yield key
        for key in self.reads:
            if owner_of(key) not in owners and f"{key.rpartition('/')[0]}/" not in prefixes:
                yield key


class AddressAnswer(Unprinted, frozen=True, omit_defaults=True):
    """The sealed addresses, or the reason why they are refused or, for now, cannot be signed (``away``)."""

    body: bytes = b""
    refused: str = ""
    away: str = ""


def sealed_answer(question: AddressQuestion, addresses: Addresses, ring: KeyRing) -> AddressAnswer:
    return AddressAnswer(seal_bytes(ring.current.value, msgspec.json.encode(addresses), _bound_to(question.command)))


def addresses_in(answer: AddressAnswer, command: ShownCommand, ring: KeyRing) -> Addresses | None:
    """The addresses in an answer; ``None`` if it has none, or does not belong to this command."""
    context = _bound_to(command)
    opened = (open_bytes(key.value, answer.body, context) for key in ring.all)
    found = next((one for one in opened if one is not None), b"")
    try:
        return codec.decode_as(dict[str, list[str]], found)
    except PayloadRefused:
        return None


def _bound_to(command: ShownCommand) -> bytes:
    return f"noetl addresses\0{command.execution_id}\0{command.command_id}\0{command.issue}".encode()

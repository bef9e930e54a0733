"""Addresses of single objects, which servers sign for workers without a key of the bucket (PROTOCOL §3 *Object keys*).

An answer is sealed with the key of the command's execution: whoever has an address may use it.
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
"""How many addresses one question may ask for."""

_OF_A_RUN: Final = re.compile(r"[0-9]{1,9}\.[A-Za-z0-9_-]{1,64}/[0-9]{1,9}(/([0-9]{1,9}|head))?")

Addresses = Mapping[str, Sequence[str]]
"""By key, the addresses of an object in the places where it may be, in order; ``nats`` in place of one: there."""


class AddressQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for addresses to read objects by, or to write them.

    Attributes:
        writes: Keys below those of the command's own runs.
        reads: Keys of objects that belong to executions that the command reads, or parts of ``files``.
        files: References to files and tables that are sealed for the command's execution.
    """

    command: ShownCommand
    writes: list[str] = []
    reads: list[str] = []
    files: list[DataReference] = []

    def refused(self, owners: Collection[str], ring: KeyRing) -> Iterator[str]:
        """The keys that the command may not ask for.

        Args:
            owners: The executions and bundles whose objects it reads.
            ring: The keys of its execution.
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
    """The addresses, sealed; or why they are refused, or cannot be signed now, as the bucket's key is away."""

    body: bytes = b""
    refused: str = ""
    away: str = ""


def sealed_answer(question: AddressQuestion, addresses: Addresses, ring: KeyRing) -> AddressAnswer:
    return AddressAnswer(seal_bytes(ring.current.value, msgspec.json.encode(addresses), _bound_to(question.command)))


def addresses_in(answer: AddressAnswer, command: ShownCommand, ring: KeyRing) -> Addresses | None:
    """The addresses of an answer to this command; ``None`` if it is none."""
    context = _bound_to(command)
    opened = (open_bytes(key.value, answer.body, context) for key in ring.all)
    found = next((one for one in opened if one is not None), b"")
    try:
        return codec.decode_as(dict[str, list[str]], found)
    except PayloadRefused:
        return None


def _bound_to(command: ShownCommand) -> bytes:
    return f"noetl addresses\0{command.execution_id}\0{command.command_id}\0{command.issue}".encode()

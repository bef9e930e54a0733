"""Ids. All except the execution id and a run's nonce derive from their cause, so that deciding twice orders once.

Source: PROTOCOL §1 *Identity*, DESIGN §3.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Final, NamedTuple

from noetl_stream.errors import UsageError
from noetl_stream.model.events import Path

ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
"""The form of any id that becomes part of a NATS subject (PROTOCOL §1)."""

_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")

PARTITIONS: Final = 32
"""P of a new system: the number of partitions of EVENTS. It is stored in the stream's metadata and in Postgres."""

MOST_PARTITIONS: Final = 1024

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_MASK_32: Final = 0xFFFFFFFF


def is_valid_id(text: str) -> bool:
    """Whether ``text`` is valid as an id in a subject."""
    return ID_PATTERN.match(text) is not None


def check_id(text: str) -> str:
    """Returns ``text`` if it is valid as an id in a subject.

    Raises:
        UsageError: it is not.
    """
    if not is_valid_id(text):
        raise UsageError(f"{text!r} is not a valid id", hint="ids are 1 to 64 letters, digits, '_' and '-'")
    return text


class _Process:
    partitions = PARTITIONS


def partition_count() -> int:
    """P, the number of partitions of this process's installation."""
    return _Process.partitions


def use_partitions(count: int) -> None:
    """Sets P, the number of partitions, for this process, before anything else: its ids and subjects depend on it. The
    stores refuse a process with another P.
    """
    _Process.partitions = count
    partition_of.cache_clear()


@lru_cache(maxsize=16_384)
def partition_of(execution_id: str, partitions: int | None = None) -> int:
    """The partition of an execution: FNV-1a-32 of its id, modulo the number of partitions (DESIGN §1)."""
    partitions = partitions or _Process.partitions
    # Low bits depend on low bits alone, and small integers cost half.
    mask = _MASK_32 if partitions & (partitions - 1) else partitions - 1
    value = _FNV_OFFSET
    for byte in execution_id.encode():
        value = ((value ^ byte) * _FNV_PRIME) & mask
    return value % partitions


def digest_of(text: str | bytes) -> str:
    """The digest that pins a playbook: the SHA-256 of the text's UTF-8 bytes, in hex."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return sha256(data).hexdigest()


@lru_cache(maxsize=256, typed=True)  # evolve, decide and effects of one fact derive the same ids
def derive(*cause: str | int) -> str:
    """A 20-character id that is a function of its cause."""
    joined = "\x1f".join(map(str, cause)).encode()
    return blake2b(joined, digest_size=10).hexdigest()


def uuid7(unix_ms: int, random_bits: bytes) -> str:
    """A version 7 UUID, whose first 48 bits are the time: executions sort and partition by their start.

    Args:
        unix_ms: Milliseconds since the epoch.
        random_bits: At least ten random bytes.
    """
    value = (unix_ms & 0xFFFFFFFFFFFF) << 80 | int.from_bytes(random_bits[:10], "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_uuid7(text: str) -> bool:
    """Whether ``text`` has the form of :func:`uuid7`."""
    return _UUID7.match(text) is not None


def id_beside(execution_id: str, cause: str) -> str:
    """The id of an execution that begins with another one's time and otherwise derives from the cause."""
    return uuid7(int(execution_id.replace("-", "")[:12], 16), bytes.fromhex(derive(execution_id, cause)))


def first_uuid7(unix_ms: int) -> str:
    """The id that sorts before those of executions started at this time or later, and after all earlier ones."""
    digits = f"{unix_ms:012x}"
    return f"{digits[:8]}-{digits[8:]}"


class RunId(NamedTuple):
    """One run of a command: the issue, the delivery, and a nonce drawn by the worker (PROTOCOL §1)."""

    command_id: str
    issue: int
    num_delivered: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.command_id}.{self.issue}.{self.num_delivered}.{self.nonce}"

    @property
    def rank(self) -> tuple[int, int]:
        """The rank of the run: a claim of higher rank takes over the step run (PROTOCOL §3 *Binding*)."""
        return (self.issue, self.num_delivered)


def report_id(run: RunId, number: int) -> str:
    """The Msg-Id of a run's report: ``command_id.issue.num_delivered.nonce.n``."""
    return f"{run}.{number}"


def run_of_report(identity: str) -> RunId:
    """The run in a report id.

    Raises:
        ValueError: if the text is not a report id.
    """
    command_id, issue, num_delivered, nonce, _number = identity.split(".")
    return RunId(command_id, int(issue), int(num_delivered), nonce)


def undoing_of(execution_id: str) -> str:
    """The id of the one execution that can undo another."""
    return id_beside(execution_id, "compensation") if is_uuid7(execution_id) else derive(execution_id, "compensation")


def step_run_of(execution_id: str, token_id: str) -> str:
    return derive(execution_id, "step_run", token_id)


def command_of(step_run_id: str, path: Path = (), segment: int = 0) -> str:
    """The id of a step run's command. Each suspension begins a new segment with its own command id (LANGUAGE §8)."""
    return derive(step_run_id, "command", *path, segment)


def paging_of(step_run_id: str, path: Path = ()) -> str:
    """The id of the command that pages out the items of the level inside the iteration ``path``."""
    return derive(step_run_id, "paging", *path)


def timer_of(subject: str, purpose: str, path: Path = ()) -> str:
    return derive(subject, "timer", purpose, *path)


def slot_of(command_id: str, path: Path) -> str:
    """The id of the slot that a task of this command waits for in this iteration; each request has its own."""
    return derive(command_id, "slot", *path)


def turn_of(step_run_id: str) -> str:
    """The id of the slot for which a step run waits until those before it in its partition have ended."""
    return derive(step_run_id, "partition")


def child_of(command_id: str, path: Path, at_ms: int) -> str:
    """The execution id of a child; like every execution id it contains the start time."""
    return uuid7(at_ms, bytes.fromhex(derive(command_id, "child", *path)))

"""The deletion of a stream for ``noetl-stream stream delete``, after an operator has confirmed the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from noetl_stream.adapters.nats.streams import StreamInfo, delete_stream, stream_info
from noetl_stream.adapters.postgres.schema.roles import setup_rights
from noetl_stream.concurrency import closing
from noetl_stream.errors import StoreMissing, Unreachable, UsageError
from noetl_stream.hosting.maintenance import require_no_server
from noetl_stream.operations.access import AuditRecord
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, LOGS, RESULTS
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.stores import COMMAND_WAIT_S, Connected, connect, required_dsn

OPERATION: Final = "deleteStream"
"""The name of the deletion in the audit."""


class Loss(NamedTuple):
    """The loss with a stream: the word by which an operator consents, and its meaning."""

    word: str
    meaning: str


LOSSES: Final[Mapping[str, Loss]] = {
    EVENTS: Loss("events", "what Postgres has not folded, and the copy from which a lost Postgres could be rebuilt"),
    COMMANDS: Loss("commands", "commands that wait, which servers issue again; what runs is run again"),
    RESULTS: Loss("results", "large results: whoever reads one that no backup has gets result_lost"),
    LOGS: Loss("logs", "what tasks have written"),
}
"""The losses by stream."""


class Deletion(msgspec.Struct, frozen=True):
    """The loss in words; ``is_recorded``: whether the audit has it."""

    lost: str
    is_recorded: bool


async def delete_after_consent(endpoint: Endpoint, stream: str, consent: str | None, by: str, reason: str) -> Deletion:
    """Deletes a stream of the engine, with an entry in the audit if Postgres has a schema.

    Args:
        stream: One of :data:`LOSSES`.
        consent: The word of its loss; anything else deletes nothing.
        by: The person who deletes it; ``reason`` is the reason for the audit.

    Raises:
        UsageError: without that word. The message says what would be lost.
        Conflict: servers live, and the stream answers.
        StoreMissing: the stream does not exist.
        Unreachable, NotReady: a store does not answer, or the schema is older: nothing was deleted, unless the message
            says that NATS may still do it.
    """
    has_schema = (await setup_rights(required_dsn(endpoint))).has_schema
    async with closing(await connect(endpoint, name="noetl-delete-stream", nats_wait_s=COMMAND_WAIT_S)) as connected:
        if has_schema:
            await connected.store.verify()
        held = await _held(connected, stream)
        lost = await _lost(connected, stream, held, has_schema=has_schema)
        word = LOSSES[stream].word
        if consent != word:
            hint = f"to lose it: noetl-stream stream delete {stream} --yes-lose {word}"
            raise UsageError(f"nothing is deleted: {lost}", hint=hint)
        if not has_schema:
            await delete_stream(connected.nats, stream)
            return Deletion(lost, is_recorded=False)
        if held is not None:
            await require_no_server(connected.store)
        record = AuditRecord(connected.store.audit, connected.clock)
        async with record(OPERATION, stream, by, f"{reason}: {lost}" if reason else lost):
            await delete_stream(connected.nats, stream)
        return Deletion(lost, is_recorded=True)


async def _held(connected: Connected, stream: str) -> StreamInfo | None:
    """Returns the contents of a stream; ``None`` if it has lost its leader, so that nobody knows."""
    try:
        found = await stream_info(connected.nats, stream)
    except StoreMissing:
        raise
    except Unreachable:
        return None
    return None if found.config.get("num_replicas", 1) > 1 and not found.cluster.leader else found


async def _lost(connected: Connected, stream: str, held: StreamInfo | None, *, has_schema: bool) -> str:
    meaning = LOSSES[stream].meaning
    if held is None:
        return f"{stream} has no leader, so nobody knows what it holds; with it goes {meaning}"
    unfolded = ""
    if stream == EVENTS and has_schema:
        cursors = {view.id: view.last_seq for view in await connected.store.read_partitions()}
        unfolded = f", {sum((await connected.log.beyond(cursors)).values())} of them not folded"
    return f"{stream} holds {held.state.messages} messages{unfolded}; with it goes {meaning}"

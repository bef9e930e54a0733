"""The JetStream streams of this project: their settings, creating and checking them (DESIGN §1, PROTOCOL §1).

``ensure_streams`` is an explicit deployment step; roles only verify. Nothing here deletes a stream unasked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from noetl_stream.adapters.nats.api_errors import (
    CONSUMER_NOT_FOUND,
    MESSAGE_NOT_FOUND,
    NO_SERVERS,
    SETTINGS_REFUSED,
    STREAM_NOT_FOUND,
)
from noetl_stream.adapters.nats.connections.connection import API_TIMEOUT_S, ApiRefused, NatsConnection
from noetl_stream.adapters.nats.connections.refusals import NotPermitted
from noetl_stream.adapters.nats.protocol import NANOSECONDS
from noetl_stream.adapters.treatments import Treatment
from noetl_stream.errors import Conflict, NotReady, StoreMissing, Unreachable
from noetl_stream.model.ids import partition_count
from noetl_stream.model.messages import FORMAT
from noetl_stream.ports.streams.task_logs import MAX_LOG_MESSAGE_BYTES
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, FENCES, LOGS, RESULTS, RESULTS_BUCKET

_Found = TypeVar("_Found")

DUPLICATE_WINDOW_S: Final = 120

_PARTITIONS_KEY = "noetl_partitions"
_FORMAT_KEY = "noetl_format"

OLDEST_NATS: Final = (2, 11)

MIN_PAYLOAD = 4 * 1024 * 1024
"""The largest message NATS must accept, in bytes: commands and reports hold up to a few ``limits.*``."""

FAR_BEHIND: Final = 1_000
"""The number of the leader's last writes that a copy may lack before it counts as behind."""

DELETION_S: Final = 120.0
"""The time in which NATS must delete a stream: without its leader, the others have to notice first."""

SILENT_S: Final = 5.0
"""The silence towards its leader after which a copy counts as away. It reports each second; NATS waits longer.

A new leader that has not heard from a copy yet reports 0, for ever if the copy died as the leader.
"""


class _StreamState(msgspec.Struct):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class _Copy(msgspec.Struct):
    name: str
    active: int = 0
    current: bool = False
    offline: bool = False
    lag: int = 0

    @property
    def is_away(self) -> bool:
        is_silent = self.active > SILENT_S * NANOSECONDS or (self.active == 0 and not self.current)
        return self.offline or is_silent or self.lag > FAR_BEHIND


class _StreamCluster(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: Sequence[_Copy] = ()


_ALONE: Final = _StreamCluster()


class StreamInfo(msgspec.Struct):
    """JetStream's answer to ``STREAM.INFO``. ``total`` counts the pages of ``state.subjects``, if requested; a single
    nats-server has no ``cluster``.
    """

    config: dict[str, Any]
    state: _StreamState
    total: int = 0
    cluster: _StreamCluster = _ALONE
    ts: datetime | None = None


class StreamDocument(msgspec.Struct, frozen=True):
    """A stream, and the nats-servers that have its copies.

    Attributes:
        replicas: The number of copies it should have.
        leader: The nats-server whose copy is written first; empty if there is none at present.
        current: The other servers with complete copies.
        behind: The other servers, with incomplete copies or offline.
        tags: The tags that the servers must have in their ``server_tags``.
    """

    stream: str
    messages: int
    bytes: int
    replicas: int
    leader: str
    current: list[str]
    behind: list[str]
    tags: list[str]


class StreamMessage(msgspec.Struct):
    """A message of a stream; ``time`` is RFC 3339."""

    seq: int
    time: str
    subject: str = ""
    data: bytes = b""


class _Sequences(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class ConsumerInfo(msgspec.Struct):
    """JetStream's answer to ``CONSUMER.INFO``; ``ts`` is RFC 3339."""

    name: str
    config: dict[str, Any]
    delivered: _Sequences
    ack_floor: _Sequences
    ts: str
    num_pending: int = 0
    num_ack_pending: int = 0
    num_redelivered: int = 0

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.config.get("metadata") or {}

    @property
    def subjects(self) -> list[str]:
        single = self.config.get("filter_subject")
        return self.config.get("filter_subjects") or ([single] if single else [])


class _ConsumerPage(msgspec.Struct):
    """JetStream's answer to ``CONSUMER.LIST``."""

    total: int = 0
    consumers: list[ConsumerInfo] | None = None
    offline: Mapping[str, str] | None = None


class _MessageAnswer(msgspec.Struct):
    message: StreamMessage


def wanted_streams(partitions: int) -> dict[str, dict[str, Any]]:
    """Returns the required settings of each stream. All other settings are the operator's."""
    window = DUPLICATE_WINDOW_S * NANOSECONDS
    return {
        EVENTS: {
            "subjects": ["noetl.events.>"],
            "retention": "limits",
            "compression": "s2",
            "discard": "new",
            "max_age": 0,
            "deny_delete": True,
            "allow_direct": True,
            "duplicate_window": window,
            "metadata": {_PARTITIONS_KEY: str(partitions), _FORMAT_KEY: str(FORMAT)},
        },
        COMMANDS: {
            "subjects": ["noetl.commands.>", FENCES],
            "retention": "workqueue",
            "discard": "new",
            "discard_new_per_subject": True,
            "max_msgs_per_subject": 1,
            "max_age": 0,
            "allow_rollup_hdrs": True,
            "duplicate_window": window,
            "metadata": {_FORMAT_KEY: str(FORMAT)},
        },
        RESULTS: {
            "subjects": [f"$O.{RESULTS_BUCKET}.C.>", f"$O.{RESULTS_BUCKET}.M.>"],
            "retention": "limits",
            "discard": "new",
            "max_age": 0,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        },
        LOGS: {"subjects": ["noetl.logs.>"], "retention": "limits", "discard": "old", "allow_direct": True},
    }


BOUNDS: Final[Mapping[str, Mapping[str, int]]] = {
    LOGS: {"max_bytes": 1 << 30, "max_age": 7 * 24 * 3600 * NANOSECONDS, "max_msg_size": MAX_LOG_MESSAGE_BYTES}
}
"""Settings of new streams that the operator may change later."""


class LogsBounds(msgspec.Struct, frozen=True, gc=False):
    """The bounds of the stream LOGS; ``None``: unchanged, or :data:`BOUNDS` for a new one."""

    max_bytes: int | None = None
    max_age_s: float | None = None

    @property
    def settings(self) -> dict[str, int]:
        """Returns the bounds as settings of the stream."""
        age = None if self.max_age_s is None else round(self.max_age_s * NANOSECONDS)
        given = {"max_bytes": self.max_bytes, "max_age": age}
        return {key: value for key, value in given.items() if value is not None}


AS_IT_IS: Final = LogsBounds()


async def ensure_streams(
    connection: NatsConnection,
    *,
    partitions: int | None = None,
    replicas: int = 1,
    tags: Sequence[str] = (),
    storage: str = "file",
    logs: LogsBounds = AS_IT_IS,
) -> list[str]:
    """Creates missing streams and corrects settings that differ.

    Args:
        partitions: P, by default as in this process. Streams with another P are rejected, not changed.
        replicas: Copies in a cluster. Raised if lower, never lowered.
        tags: Tags that each nats-server with a copy must have in its ``server_tags``. None: streams stay where they
            are.
        storage: ``file`` or ``memory``, for new streams.
        logs: The bounds of LOGS.

    Returns:
        The changes made, one line each.

    Raises:
        NotReady: an existing stream cannot be changed as required, or the cluster is too small.
        Unreachable: NATS does not answer, or refuses.
    """
    changes = []
    placement = {"placement": {"tags": list(tags)}} if tags else {}
    for name, required in wanted_streams(partitions or partition_count()).items():
        wanted = required | (logs.settings if name == LOGS else {}) | placement
        present = await _config(connection, name)
        if present is None:
            config = {"name": name, **BOUNDS.get(name, {}), **wanted, "num_replicas": replicas, "storage": storage}
            await _write(connection, "CREATE", config)
            changes.append(f"created stream {name}")
            continue
        _check_partitions(name, present, wanted)
        differing = _differing(present, wanted)
        if present.get("num_replicas", 1) < replicas:
            differing["num_replicas"] = replicas
        if differing:
            await _write(connection, "UPDATE", {**present, **differing})
            changes.append(f"changed stream {name}: {', '.join(sorted(differing))}")
    return changes


async def list_streams(connection: NatsConnection) -> list[StreamDocument]:
    """Lists the existing streams. Raises Unreachable if NATS does not answer."""
    found = []
    for name in wanted_streams(partition_count()):
        with contextlib.suppress(StoreMissing):
            found.append(_document(name, await stream_info(connection, name)))
    return found


def _document(name: str, info: StreamInfo) -> StreamDocument:
    copies = info.cluster.replicas
    return StreamDocument(
        stream=name,
        messages=info.state.messages,
        bytes=info.state.bytes,
        replicas=info.config.get("num_replicas", 1),
        leader=info.cluster.leader,
        current=[copy.name for copy in copies if copy.current and not copy.offline],
        behind=[copy.name for copy in copies if copy.offline or not copy.current],
        tags=info.config.get("placement", {}).get("tags") or [],
    )


async def verify_stream(connection: NatsConnection, name: str, partitions: int | None = None) -> None:
    """Checks that the stream has the settings this version needs.

    Raises:
        NotReady: the stream is missing or differs; the hint names the command that repairs it.
    """
    require_payload(connection)
    present = await _config(connection, name)
    if present is None:
        raise stream_missing(name)
    wanted = wanted_streams(partitions or partition_count())[name]
    _check_partitions(name, present, wanted)
    differing = _differing(present, wanted)
    if differing:
        hint = "run `noetl-stream stream ensure`"
        raise NotReady(f"stream {name} differs from what this version needs: {', '.join(sorted(differing))}", hint=hint)


def require_version(connection: NatsConnection) -> None:
    """Raises :class:`~noetl_stream.errors.NotReady` if NATS is too old to read many messages at once."""
    major, minor, *_ = (int(part) for part in re.findall(r"\d+", f"{connection.server_version}.0.0"))
    if (major, minor) < OLDEST_NATS:
        hint = f"use {'.'.join(map(str, OLDEST_NATS))} or newer"
        raise NotReady(f"NATS at {connection.shown_url} is nats-server {connection.server_version}", hint=hint)


def require_payload(connection: NatsConnection) -> None:
    """Raises :class:`~noetl_stream.errors.NotReady` if NATS does not accept the messages of this program."""
    if connection.max_payload < MIN_PAYLOAD:
        taken = connection.max_payload
        message = f"NATS at {connection.shown_url} accepts messages of up to {taken} bytes; {MIN_PAYLOAD} are needed"
        raise NotReady(message, hint="write `max_payload: 8MB` into its configuration, and reload it")


async def verify_empty(connection: NatsConnection, names: Iterable[str]) -> None:
    """Checks that these streams are empty and new.

    Raises:
        Conflict: a stream holds messages, or has held some.
        StoreMissing: one does not exist.
    """
    for name in names:
        state = (await stream_info(connection, name)).state
        if state.last_seq:
            raise Conflict(
                f"stream {name} at {connection.shown_url} is not empty: it has had {state.last_seq} messages",
                hint="stop all servers, delete EVENTS and COMMANDS with `noetl-stream stream delete`, and run "
                "`noetl-stream stream ensure`; or use a new NATS",
            )


async def partitions_of(connection: NatsConnection) -> int | None:
    """Returns P of EVENTS; ``None`` if the stream does not exist or does not say."""
    present = await _config(connection, EVENTS)
    found = (present or {}).get("metadata", {}).get(_PARTITIONS_KEY)
    return int(found) if found is not None else None


async def delete_stream(connection: NatsConnection, name: str) -> None:
    """Deletes a stream with all its messages; a missing one counts as deleted.

    Raises:
        Unreachable: NATS refuses, or does not answer within :data:`DELETION_S`; it may still do it then.
    """
    try:
        await stream_api(connection, name, f"STREAM.DELETE.{name}", timeout_s=DELETION_S)
    except StoreMissing:
        return  # deleted by an earlier sending of this request, whose answer came too late
    except (ApiRefused, NotPermitted):
        raise
    except Unreachable as error:
        hint = f"NATS may still delete {name}: `noetl-stream stream list` says when it is gone"
        raise Unreachable(error.message, hint=hint) from error


async def set_partitions(connection: NatsConnection, count: int) -> None:
    """Stores a new P with EVENTS, for :mod:`noetl_stream.hosting.maintenance` alone.

    Errors: as for :func:`ensure_streams`.
    """
    present = await _config(connection, EVENTS)
    if present is None:
        raise stream_missing(EVENTS)
    metadata = {**present.get("metadata", {}), _PARTITIONS_KEY: str(count)}
    await _write(connection, "UPDATE", {**present, "metadata": metadata})


def differing_settings(name: str, present: Mapping[str, Any]) -> list[str]:
    """Returns the settings of an engine's stream that differ from those this version needs, by name."""
    return sorted(_differing(present, wanted_streams(partition_count())[name]))


def stream_missing(name: str, hint: str = "run `noetl-stream stream ensure`") -> StoreMissing:
    return StoreMissing(f"stream {name} does not exist", hint=hint)


async def stream_api(
    connection: NatsConnection,
    stream: str,
    subject: str,
    request: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = API_TIMEOUT_S,
    prefix: str = "",
) -> bytes:
    """Calls JetStream about a stream. See
    :meth:`~noetl_stream.adapters.nats.connections.connection.NatsConnection.api`.

    Raises:
        StoreMissing: ``stream`` does not exist.
    """
    try:
        return await connection.api(subject, request, timeout_s=timeout_s, prefix=prefix)
    except ApiRefused as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        raise (stream_missing(stream, "make it, and it is read") if prefix else stream_missing(stream)) from None


async def stream_info(connection: NatsConnection, stream: str, request: Mapping[str, Any] | None = None) -> StreamInfo:
    """Returns settings and state of a stream. Errors: as for :func:`stream_api`."""
    return msgspec.json.decode(await stream_api(connection, stream, f"STREAM.INFO.{stream}", request), type=StreamInfo)


async def stored_message(
    connection: NatsConnection, stream: str, wanted: Mapping[str, Any], *, timeout_s: float = API_TIMEOUT_S
) -> StreamMessage | None:
    """Returns a message from the stream's leader, which has the latest writes. Errors: as for :func:`stream_api`."""
    asked = stream_api(connection, stream, f"STREAM.MSG.GET.{stream}", wanted, timeout_s=timeout_s)
    found = await _unless_missing(asked, MESSAGE_NOT_FOUND, _MessageAnswer)
    return None if found is None else found.message


async def consumer_info(connection: NatsConnection, stream: str, name: str, *, prefix: str = "") -> ConsumerInfo | None:
    """Returns the state of a consumer; ``None`` if it does not exist. Errors: as for :func:`stream_api`."""
    asked = stream_api(connection, stream, f"CONSUMER.INFO.{stream}.{name}", prefix=prefix)
    return await _unless_missing(asked, CONSUMER_NOT_FOUND, ConsumerInfo)


async def _unless_missing(asked: Awaitable[bytes], missing: int, kind: type[_Found]) -> _Found | None:
    try:
        return msgspec.json.decode(await asked, type=kind)
    except ApiRefused as error:
        if error.err_code == missing:
            return None
        raise


async def list_consumers(
    connection: NatsConnection, stream: str, *, prefix: str = "", offline: dict[str, str] | None = None
) -> AsyncIterator[ConsumerInfo]:
    """Lists the consumers of a stream. Errors: as for :func:`stream_api`.

    Args:
        offline: Receives the reason why NATS cannot read a consumer, by its name.
    """
    offset, total = 0, 1
    while offset < total:
        request = {"offset": offset}
        answer = await stream_api(connection, stream, f"CONSUMER.LIST.{stream}", request, prefix=prefix)
        page = msgspec.json.decode(answer, type=_ConsumerPage)
        if offline is not None:
            offline.update(page.offline or {})
        listed = page.consumers or []
        for one in listed:
            yield one
        offset, total = offset + len(listed), page.total if listed else 0


async def _config(connection: NatsConnection, name: str) -> dict[str, Any] | None:
    try:
        return (await stream_info(connection, name)).config
    except StoreMissing:
        return None


async def _write(connection: NatsConnection, verb: str, config: Mapping[str, Any]) -> None:
    """Creates or updates a stream: ``verb`` is ``CREATE`` or ``UPDATE``."""
    name = config["name"]
    try:
        await connection.api(f"STREAM.{verb}.{name}", config)
    except ApiRefused as error:
        if error.err_code in NO_SERVERS:
            raise _too_few_servers(name, config, error) from error
        if verb == "UPDATE" and error.err_code == SETTINGS_REFUSED:
            hint = "it may belong to something else: use another NATS account or server"
            message = f"stream {name} exists with settings that cannot be changed: {error.description}"
            raise NotReady(message, hint=hint) from error
        if error.rule.treatment is Treatment.STOPS:
            why = f"{error.rule.meaning} ({error.description})"
            raise NotReady(f"cannot make or change stream {name}: {why}", hint=error.hint) from error
        raise


def _too_few_servers(name: str, config: Mapping[str, Any], error: ApiRefused) -> NotReady:
    copies, tags = config["num_replicas"], config.get("placement", {}).get("tags", [])
    tagged = f" with the tags {', '.join(tags)}" if tags else ""
    return NotReady(
        f"stream {name} needs {copies} nats-servers with JetStream{tagged} in one cluster: {error.description}",
        hint=f"{error.hint}{' or other tags' if tags else ''}",
    )


def _check_partitions(name: str, present: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    expected = wanted.get("metadata", {}).get(_PARTITIONS_KEY)
    found = present.get("metadata", {}).get(_PARTITIONS_KEY)
    if expected is not None and found is not None and found != expected:
        hint = f"set NOETL_PARTITIONS={found}; `noetl-stream database repartition` changes the stores"
        raise NotReady(f"stream {name} is for {found} partitions, this process uses {expected}", hint=hint)


def _differing(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the required settings that differ. Subjects, metadata and a format added by a newer release stay."""
    needed = dict(wanted)
    if subjects := present.get("subjects"):
        needed["subjects"] = list(dict.fromkeys([*subjects, *wanted["subjects"]]))
    if "metadata" in wanted:
        found, required = present.get("metadata", {}), wanted["metadata"]
        formats = required[_FORMAT_KEY], found.get(_FORMAT_KEY, "")
        newest = max(formats, key=lambda text: int(text) if text.isdecimal() else 0)
        needed["metadata"] = {**found, **required, _FORMAT_KEY: newest}
    return {key: value for key, value in needed.items() if present.get(key) != value}

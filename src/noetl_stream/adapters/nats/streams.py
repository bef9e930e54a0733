"""The JetStream streams of this project: their settings, creating and checking them (DESIGN §1, PROTOCOL §1).

``ensure_streams`` is an explicit deployment step; roles only verify. Nothing here ever deletes a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.adapters.nats.connection import API_TIMEOUT_S, ApiRefused, NatsConnection
from noetl_stream.adapters.nats.protocol import MESSAGE_NOT_FOUND, NANOSECONDS, STREAM_NOT_FOUND
from noetl_stream.errors import NotReady, StoreMissing
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.messages import FORMAT
from noetl_stream.ports.subjects import COMMANDS, EVENTS, FENCES, LOGS, RESULTS, RESULTS_BUCKET
from noetl_stream.ports.task_logs import MAX_LOG_MESSAGE_BYTES

DUPLICATE_WINDOW_S: Final = 120

_PARTITIONS_KEY = "noetl_partitions"
_FORMAT_KEY = "noetl_format"

MIN_PAYLOAD = 4 * 1024 * 1024
"""The largest message NATS must accept, in bytes: commands and reports hold up to a few ``limits.*``."""


class _StreamState(msgspec.Struct):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class StreamInfo(msgspec.Struct):
    """JetStream's answer to ``STREAM.INFO``. ``total`` counts the pages of ``state.subjects``, if requested."""

    config: dict[str, Any]
    state: _StreamState
    total: int = 0


class StreamMessage(msgspec.Struct):
    """A message of a stream; ``time`` is RFC 3339."""

    seq: int
    time: str
    data: bytes = b""


class _MessageAnswer(msgspec.Struct):
    message: StreamMessage


def wanted_streams(partitions: int) -> dict[str, dict[str, Any]]:
    """The required settings of each stream. All others are the operator's."""
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


class LogsBounds(NamedTuple):
    """How much LOGS keeps; ``None``: as it is, or :data:`BOUNDS` for a new one."""

    max_bytes: int | None = None
    max_age_s: float | None = None

    @property
    def settings(self) -> dict[str, int]:
        """Those of the stream."""
        age = None if self.max_age_s is None else round(self.max_age_s * NANOSECONDS)
        given = {"max_bytes": self.max_bytes, "max_age": age}
        return {key: value for key, value in given.items() if value is not None}


AS_IT_IS: Final = LogsBounds()


async def ensure_streams(
    connection: NatsConnection,
    *,
    partitions: int = PARTITIONS,
    replicas: int = 1,
    storage: str = "file",
    logs: LogsBounds = AS_IT_IS,
) -> list[str]:
    """Creates missing streams and corrects settings that differ.

    Args:
        partitions: P. Streams with another P are rejected, not changed.
        replicas: Copies in a cluster. Raised if lower, never lowered.
        storage: ``file`` or ``memory``, for new streams.
        logs: How much LOGS keeps.

    Returns:
        What was created or changed, one line each.

    Raises:
        NotReady: an existing stream cannot be changed as required.
        Unreachable: NATS does not answer, or refuses.
    """
    changes = []
    for name, required in wanted_streams(partitions).items():
        wanted = required | logs.settings if name == LOGS else required
        present = await _config(connection, name)
        if present is None:
            config = {"name": name, **BOUNDS.get(name, {}), **wanted, "num_replicas": replicas, "storage": storage}
            await connection.api(f"STREAM.CREATE.{name}", config)
            changes.append(f"created stream {name}")
            continue
        _check_partitions(name, present, wanted)
        differing = _differing(present, wanted)
        if present.get("num_replicas", 1) < replicas:
            differing["num_replicas"] = replicas
        if differing:
            await _update(connection, name, present, differing)
            changes.append(f"changed stream {name}: {', '.join(sorted(differing))}")
    return changes


async def verify_stream(connection: NatsConnection, name: str, partitions: int = PARTITIONS) -> None:
    """Checks that the stream has the settings this version needs.

    Raises:
        NotReady: it is missing or differs; the hint names the command that repairs it.
    """
    if connection.max_payload < MIN_PAYLOAD:
        taken = connection.max_payload
        raise NotReady(
            f"NATS at {connection.shown_url} accepts messages of up to {taken} bytes; {MIN_PAYLOAD} are needed",
            hint="set `max_payload: 8MB` in its configuration, as nats.conf does",
        )
    present = await _config(connection, name)
    if present is None:
        raise stream_missing(name)
    wanted = wanted_streams(partitions)[name]
    _check_partitions(name, present, wanted)
    differing = _differing(present, wanted)
    if differing:
        raise NotReady(
            f"stream {name} differs from what this version needs: {', '.join(sorted(differing))}",
            hint="run `noetl-stream stream ensure`",
        )


def stream_missing(name: str) -> StoreMissing:
    return StoreMissing(f"stream {name} does not exist", hint="run `noetl-stream stream ensure`")


async def stream_api(
    connection: NatsConnection,
    stream: str,
    subject: str,
    request: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = API_TIMEOUT_S,
) -> bytes:
    """See :meth:`~noetl_stream.adapters.nats.connection.NatsConnection.api`.

    Raises:
        StoreMissing: ``stream`` does not exist.
    """
    try:
        return await connection.api(subject, request, timeout_s=timeout_s)
    except ApiRefused as error:
        raise stream_missing(stream) if error.err_code == STREAM_NOT_FOUND else error from None


async def stream_info(connection: NatsConnection, stream: str, request: Mapping[str, Any] | None = None) -> StreamInfo:
    """Settings and state of a stream. Errors: as of :func:`stream_api`."""
    return msgspec.json.decode(await stream_api(connection, stream, f"STREAM.INFO.{stream}", request), type=StreamInfo)


async def stored_message(
    connection: NatsConnection, stream: str, wanted: Mapping[str, Any], *, timeout_s: float = API_TIMEOUT_S
) -> StreamMessage | None:
    """A message, read from the stream's leader, which has the latest writes. Errors: as of :func:`stream_api`."""
    try:
        answer = await stream_api(connection, stream, f"STREAM.MSG.GET.{stream}", wanted, timeout_s=timeout_s)
    except ApiRefused as error:
        if error.err_code == MESSAGE_NOT_FOUND:
            return None
        raise
    return msgspec.json.decode(answer, type=_MessageAnswer).message


async def _config(connection: NatsConnection, name: str) -> dict[str, Any] | None:
    try:
        return (await stream_info(connection, name)).config
    except StoreMissing:
        return None


async def _update(
    connection: NatsConnection, name: str, present: Mapping[str, Any], differing: Mapping[str, Any]
) -> None:
    try:
        await connection.api(f"STREAM.UPDATE.{name}", {**present, **differing})
    except ApiRefused as error:
        raise NotReady(
            f"stream {name} exists with settings that cannot be changed: {error.description}",
            hint="it may belong to something else: use another NATS account or server",
        ) from error


def _check_partitions(name: str, present: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    expected = wanted.get("metadata", {}).get(_PARTITIONS_KEY)
    found = present.get("metadata", {}).get(_PARTITIONS_KEY)
    if expected is not None and found is not None and found != expected:
        raise NotReady(
            f"stream {name} was created for {found} partitions, this version uses {expected}",
            hint="the number of partitions of a stream never changes: use another NATS account or server",
        )


def _differing(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The required settings that differ. Subjects, metadata and a format that a newer release has added stay."""
    needed = dict(wanted)
    if subjects := present.get("subjects"):
        needed["subjects"] = list(dict.fromkeys([*subjects, *wanted["subjects"]]))
    if "metadata" in wanted:
        found, required = present.get("metadata", {}), wanted["metadata"]
        newest = max(required[_FORMAT_KEY], found.get(_FORMAT_KEY, ""), key=_number)
        needed["metadata"] = {**found, **required, _FORMAT_KEY: newest}
    return {key: value for key, value in needed.items() if present.get(key) != value}


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0

"""The errors of JetStream that requests and publishes can meet, and their treatment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl_stream.adapters.nats.connections.refusals import RIGHTS_HINT
from noetl_stream.adapters.nats.protocol import NO_RESPONDERS, ApiError
from noetl_stream.adapters.treatments import CodeRule, Treatment
from noetl_stream.errors import page

CONSUMER_UNSTORED: Final = frozenset({10012, 10104})
CONSUMER_NOT_FOUND: Final = 10014
MESSAGE_NOT_FOUND: Final = 10037
STREAM_NOT_FOUND: Final = 10059
WRONG_LAST_SEQUENCE: Final = 10071
STORE_REFUSED: Final = 10077
SUBJECTS_OVERLAP: Final = 10100
COPY_UNDER_WAY: Final = 10158
CHECK_UNDER_WAY: Final = frozenset({10163, 10164})
SETTINGS_REFUSED: Final = 10052
NO_SERVERS: Final = frozenset({10005, 10074})
JETSTREAM_OFF: Final = frozenset({10039, 10076})

NO_STREAM: Final = ApiError(NO_RESPONDERS, 0, "no stream takes this subject")
NOT_PERMITTED: Final = ApiError(403, 0, "this user may not publish there")

_ENSURE: Final = "run `noetl-stream stream ensure`"
_OFF: Final = "is JetStream starting, off for this account, or away with the hub of a leaf node?"
_SILENT: Final = f"{_OFF} A new account needs a second reload of NATS: `nats-server --signal reload`"
_DISK: Final = "make room on the server's disk, or raise max_file_store in the configuration of NATS"
_FULL: Final = "the stream is full: raise its limits, or make room on the server's disk"
_ACCOUNT: Final = "raise the limits of its JetStream account"
_OFFLINE: Final = "its files are damaged or of a newer NATS, or its copies are away: look at the log of NATS"
_SHARED: Final = "read it by one trigger alone, or keep it as a stream with limits"
_FEWER: Final = "start them, or ask for fewer replicas"
_LATER: Final = "run it again when it has ended"
_ANEW: Final = f"make it again: {page('how-to/disaster')}"

_HANDLED, _AGAIN, _WAITED, _STOPS = Treatment

RULES: Final[Mapping[int, CodeRule]] = {
    NOT_PERMITTED.code: CodeRule(_WAITED, "the NATS user may not publish there", RIGHTS_HINT),
    NO_STREAM.code: CodeRule(_AGAIN, "no stream takes the message, or its leader is being elected", _ENSURE),
    10002: CodeRule(_WAITED, "the account's limits are reached", _ACCOUNT),
    10005: CodeRule(_STOPS, "too few nats-servers for the copies of a stream", _FEWER),
    10008: CodeRule(_AGAIN, "a cluster is electing its leader", "does a majority of its nats-servers run?"),
    10012: CodeRule(
        _HANDLED, "NATS cannot read its files of a pool's consumer, which is made again in memory", _OFFLINE
    ),
    10013: CodeRule(_AGAIN, "another server makes the same consumer at this moment"),
    CONSUMER_NOT_FOUND: CodeRule(_HANDLED, "there is no such consumer: a server makes it"),
    10023: CodeRule(_WAITED, "the nats-server has no storage or memory left", _DISK),
    10026: CodeRule(_WAITED, "no further consumer is allowed", "raise max_consumers of the stream and of its account"),
    10027: CodeRule(_STOPS, "no further stream is allowed", _ACCOUNT),
    10028: CodeRule(
        _WAITED, "the memory of JetStream is used up", "raise max_memory_store in the configuration of NATS"
    ),
    MESSAGE_NOT_FOUND: CodeRule(_HANDLED, "there is no such message"),
    10039: CodeRule(_AGAIN, "JetStream is off for the account, or starting", _OFF),
    10047: CodeRule(_WAITED, "the storage of JetStream is used up", _DISK),
    SETTINGS_REFUSED: CodeRule(_STOPS, "NATS refuses the settings of a stream", "use a newer NATS, or other settings"),
    10054: CodeRule(_WAITED, "the message is larger than its stream takes", "raise max_msg_size of the stream"),
    10058: CodeRule(_STOPS, "another made the stream at this moment", _LATER),
    STREAM_NOT_FOUND: CodeRule(_WAITED, "there is no such stream; a process that starts ends instead", _ENSURE),
    10065: CodeRule(_STOPS, "another stream takes these subjects", "use another NATS account or server"),
    WRONG_LAST_SEQUENCE: CodeRule(
        _HANDLED, "another server has the partition, or another put of the object came first"
    ),
    10074: CodeRule(_STOPS, "a NATS without cluster keeps one copy of a stream only", _FEWER),
    10076: CodeRule(
        _AGAIN, "JetStream does not answer, as while it starts; without JetStream the process stops", _SILENT
    ),
    STORE_REFUSED: CodeRule(_WAITED, "the stream is full, or cannot write", _FULL),
    10096: CodeRule(_AGAIN, "the stream is being opened or closed"),
    10099: CodeRule(_WAITED, "a work queue has another reader of all its messages", _SHARED),
    SUBJECTS_OVERLAP: CodeRule(_HANDLED, "a pool's commands of some priority have their own consumer", _SHARED),
    10104: CodeRule(_HANDLED, "NATS cannot write its files of a pool's consumer, which is made again in memory", _DISK),
    10109: CodeRule(_WAITED, "the stream is sealed, which cannot be undone", _ANEW),
    10110: CodeRule(_WAITED, "the stream may not be purged, which cannot be undone", _ANEW),
    10111: CodeRule(_WAITED, "the stream does not replace messages", _ENSURE),
    10113: CodeRule(_STOPS, "the account takes only streams with max_bytes", _ACCOUNT),
    10118: CodeRule(_WAITED, "all copies of the stream are away", _OFFLINE),
    10119: CodeRule(_WAITED, "all copies of the consumer are away", _OFFLINE),
    10120: CodeRule(_STOPS, "the account has no limits for streams of so many copies", _ACCOUNT),
    10121: CodeRule(_WAITED, "a consumer may not have 1,000,000 unacknowledged messages", "raise max_ack_pending"),
    10122: CodeRule(_STOPS, "the account takes no streams that large", _ACCOUNT),
    10123: CodeRule(_STOPS, "a stream cannot be moved and copied at once", "change its tags first, then its replicas"),
    10124: CodeRule(_STOPS, "the stream is being moved", _LATER),
    10153: CodeRule(
        _WAITED, "a reader may not be idle for 30 s", "raise inactive_threshold in consumer_limits of EVENTS"
    ),
    COPY_UNDER_WAY: CodeRule(_AGAIN, "the same message is on its way to the copies of the stream"),
    10163: CodeRule(_HANDLED, "a new leader cannot check the order of a message yet"),
    10164: CodeRule(_HANDLED, "the leader cannot check the order of a message while another is on its way"),
    10167: CodeRule(_AGAIN, "more messages come than the stream can store", "is the disk of NATS slow?"),
    10194: CodeRule(_WAITED, "NATS cannot read the stream", _OFFLINE),
    10195: CodeRule(_WAITED, "NATS cannot read the consumer", "`noetl-stream doctor` names it, and what to do"),
    10226: CodeRule(_STOPS, "the stream is being changed", _LATER),
}
"""The rules by ``err_code``, or by ``code`` for refusals that do not come from JetStream."""

_UNKNOWN: Final = CodeRule(_WAITED, "")


def rule_of(error: ApiError) -> CodeRule:
    """Returns the treatment of an error; for one that is not in the table, to wait."""
    return RULES.get(error.err_code or error.code, _UNKNOWN)

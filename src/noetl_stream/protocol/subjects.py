"""Subjects shared by several roles (DESIGN §1, PROTOCOL §1, §4)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple, cast

import msgspec

from noetl_stream.model.ids import RunId, check_id, derive, partition_of
from noetl_stream.model.priorities import DEFAULT_PRIORITY

EVENTS: Final = "EVENTS"
COMMANDS: Final = "COMMANDS"
LOGS: Final = "LOGS"
RESULTS_BUCKET: Final = "noetl-results"
RESULTS: Final = f"OBJ_{RESULTS_BUCKET}"
"""The streams, and the bucket of the object store behind RESULTS."""

STOP: Final = "noetl.stop"
"""Server → workers: :class:`~noetl_stream.model.messages.Stop`."""

SERVERS: Final = "noetl.servers"
"""Server → servers: presence; the body is the owner's name and its signature."""

INBOX: Final = "noetl.inbox"
"""Server → servers: partitions with new inbox messages, as a JSON list."""

ANSWERED: Final = "noetl.answered"
"""Server → client: the answer to a request, once it is committed."""

CLAIMED: Final = "noetl.claim"
"""Server → worker: whether a claimed command may run (:func:`claim_answer`)."""

PING: Final = "noetl.ask.ping"
"""Anyone → any server: whether a server is alive."""

ASK_REQUEST: Final = "noetl.ask.request"
ASK_PLAYBOOK: Final = "noetl.ask.playbook"
ASK_RESULT: Final = "noetl.ask.result"
"""Anyone → any server: the gathered result of a loop, as a reference into the object store. The key of the loop's
reference follows: execution and step run.
"""

ASK_CATALOG: Final = "noetl.ask.catalog"
"""Worker → any server: the playbook with this path and version, both in the body, since paths have slashes."""

ASK_QUEUE: Final = "noetl.ask.queue"
"""Worker → any server: create the queue of the worker's pool, which follows; answered once it exists."""

NEW_PRIORITY: Final = "noetl.priority"
"""Server → workers of a pool, which follows: it has commands of a priority not used before."""

ASK_WORKERS: Final = "noetl.ask.workers"
"""Anyone → every worker of a pool, which follows; each answers with its
:class:`~noetl_stream.model.messages.WorkerPresence`.
"""

ASK_MEMORY: Final = "noetl.ask.memory"
"""Gateway → every server; each answers with its :class:`~noetl_stream.model.messages.MemoryUse`."""

ASK_OLDEST: Final = "noetl.ask.oldest"
"""Gateway → any server: the time, in ms, since which the longest-waiting command of each pool waits. The body is a JSON
list of at most :data:`MOST_POOLS_ASKED` pools; the answer is by pool, without those in which none waits.
"""

MOST_POOLS_ASKED: Final = 256

PURGE: Final = "noetl.ask.purge"
"""Gateway → any server: delete the objects with these keys, a JSON list, and the logs that :func:`logs_key` names;
answered with their number.
"""

ASK_WEBHOOK: Final = "noetl.ask.webhook"
"""Gateway → any server: :class:`~noetl_stream.model.messages.WebhookQuestion`."""

ASK_SECRET: Final = "noetl.ask.secret"
"""Worker → any server: :class:`~noetl_stream.model.messages.SecretQuestion`."""

ASK_HIDE: Final = "noetl.ask.hide"
"""Worker → any server: :class:`~noetl_stream.model.messages.HideQuestion`."""


ASK_ADDRESSES: Final = "noetl.ask.addresses"
"""Worker → any server: :class:`~noetl_stream.protocol.object_addresses.AddressQuestion`."""


def claim_answer(pool: str, run: RunId) -> str:
    """The subject of the answer to a claim by this run; its parts are valid ids. Workers do not choose it: servers may
    publish what workers may not.
    """
    return f"{CLAIMED}.{pool}.{run.command_id}.{run.nonce}"


def ask_request(execution_id: str, request_id: str) -> str:
    """The subject of the question whether this request was folded, and its answer."""
    return f"{ASK_REQUEST}.{execution_id}.{request_id}"


def answered(execution_id: str, request_id: str) -> str:
    """The subject of the answer to a request, sent once it is committed; :func:`ask_request` returns the same later."""
    return f"{ANSWERED}.{execution_id}.{request_id}"


ALL_DECIDED: Final = "noetl.events.*.*.decided"
"""The journal records of all servers."""


InputKind = Literal["requested", "reported", "requeued"]


class Sender(msgspec.Struct, frozen=True, gc=False):
    """The possible senders of an input, as given by its subject and enforced by permissions (PROTOCOL §7 *Who says
    it*).

    Attributes:
        kind: ``requested`` by people, ``reported`` by workers, ``requeued``: either, requeued from a dead letter.
        pool: The pool of the worker; ``""`` for subjects without one, as in version 0.2.
    """

    kind: InputKind
    pool: str = ""


def sender_of(subject: str) -> Sender:
    """The sender of an input with this subject."""
    return _sender(subject.split(".", 4)[4])


@lru_cache(maxsize=1024)
def _sender(ending: str) -> Sender:
    kind, *pool = ending.split(".")
    return Sender(cast(InputKind, kind), *pool)


@lru_cache(maxsize=8192)
def requested(execution_id: str) -> str:
    """The subject of requests for this execution; the partition is a function of the id.

    Raises:
        UsageError: the id is not valid in a subject.
    """
    return _input(execution_id, "requested")


@lru_cache(maxsize=8192)
def reported(execution_id: str, pool: str) -> str:
    """The subject of reports of this pool's workers for this execution.

    Raises:
        UsageError: an id is not valid in a subject.
    """
    return _input(execution_id, f"reported.{check_id(pool)}")


def requeued(execution_id: str) -> str:
    """The subject of dead letters that are requeued for this execution.

    Raises:
        UsageError: the id is not valid in a subject.
    """
    return _input(execution_id, "requeued")


def _input(execution_id: str, kind: str) -> str:
    return f"noetl.events.{partition_of(execution_id)}.{check_id(execution_id)}.{kind}"


def inputs(partition: int | str) -> list[str]:
    """The patterns of all inputs of a partition (``*`` for all partitions), those of version 0.2 last."""
    return [f"noetl.events.{partition}.*.{kind}" for kind in ("requested", "reported.*", "requeued", "reported")]


@lru_cache(maxsize=8192)
def decided(partition: int, execution_id: str) -> str:
    """The subject of this execution's journal records, stored and live.

    Raises:
        UsageError: the id is not valid in a subject.
    """
    return f"noetl.events.{partition}.{check_id(execution_id)}.decided"


def checkpoint(partition: int, execution_id: str) -> str:
    """The subject of this execution's checkpoint records.

    Raises:
        UsageError: the id is not valid in a subject.
    """
    return f"noetl.events.{partition}.{check_id(execution_id)}.checkpoint"


FENCE_ID: Final = "$fence"
"""Stands for an execution in the subject of a fence; no execution has this id."""


@lru_cache(maxsize=1024)
def log_fence(partition: int) -> str:
    """The subject of a partition's fences in EVENTS: :class:`~noetl_stream.protocol.log_fences.LogFence`."""
    return f"noetl.events.{partition}.{FENCE_ID}.checkpoint"


def playbook_key(digest: str) -> str:
    """The object store key of a playbook's source, until the fold has copied it."""
    return f"playbook/{digest}"


def bundle_owner(bundle: str) -> str:
    """The id that stands for an execution in the seal of a bundle; no execution has it."""
    return f"bundle.{derive(bundle)}"


def bundle_key(bundle: str) -> str:
    """The object store key of a bundle, which does not reveal its digest."""
    return f"{bundle_owner(bundle)}/zip"


def is_bundle_key(key: str) -> bool:
    """Whether an object is a bundle, which is sealed anew each time it is stored."""
    return key.startswith("bundle.") and key.endswith("/zip")


def partition_patterns(partition: int | str) -> tuple[str, str, str]:
    """The patterns of all messages of a partition, of its journal records, and of its checkpoint records."""
    of_partition = f"noetl.events.{partition}"
    return f"{of_partition}.>", f"{of_partition}.*.decided", f"{of_partition}.*.checkpoint"


FENCES: Final = "noetl.fence.*"
"""The fences of all partitions, which COMMANDS holds in addition to the commands."""


@lru_cache(maxsize=1024)
def fence(partition: int) -> str:
    """The subject of a partition's fence: :class:`~noetl_stream.model.messages.QueueFence`."""
    return f"noetl.fence.{partition}"


def command_subject(pool: str, execution_id: str, command_id: str, priority: int = DEFAULT_PRIORITY) -> str:
    """The subject of a command, unique in the queue.

    Raises:
        UsageError: an id is not valid in a subject.
    """
    return f"noetl.commands.{check_id(pool)}.{priority:d}.{check_id(execution_id)}.{check_id(command_id)}"


def commands_of(pool: str, priority: int) -> str:
    """The pattern of the commands of a pool with this priority."""
    return f"noetl.commands.{pool}.{priority:d}.*.*"


def commands_without_priority(pool: str) -> str:
    """The pattern of the commands of version 0.2, which had no priorities."""
    return f"noetl.commands.{pool}.*.*"


def place_in_queue(subject: str) -> tuple[str, int]:
    """The pool and the priority that a command's subject names."""
    _, _, pool, *rest = subject.split(".")
    return pool, int(rest[0]) if len(rest) > 2 and rest[0].isdecimal() else DEFAULT_PRIORITY


def command_in(subject: str) -> tuple[str, str]:
    """The execution and the command that a command's subject names; they may be invalid ids."""
    *_, execution_id, command_id = ("", *subject.split("."))
    return execution_id, command_id


def command_patterns(execution_id: str, command_id: str) -> list[str]:
    """The subjects of a command in any pool with any priority; the one of version 0.2 without priorities is last.

    Raises:
        UsageError: an id is not valid in a subject.
    """
    command = f"{check_id(execution_id)}.{check_id(command_id)}"
    return [f"noetl.commands.*.*.{command}", f"noetl.commands.*.{command}"]


class LogOwner(NamedTuple):
    """The owner of the lines in a message of LOGS: a pool, and a namespace as named in its subject (not in 0.3)."""

    pool: str
    namespace: str


_NAMESPACE: Final = "ns-"


@lru_cache(maxsize=1024)
def named_in_logs(namespace: str) -> str:
    """The name of a namespace in the subjects of LOGS; namespaces are arbitrary text."""
    return _NAMESPACE + derive(namespace)


def task_logs(pool: str, execution_id: str, named: str) -> str:
    """The subject of the output of an execution's tasks.

    Args:
        named: The namespace, by :func:`named_in_logs`; the step run, for a command without a namespace.
    """
    return f"noetl.logs.{pool}.{execution_id}.{named}"


def log_owner(subject: str) -> LogOwner:
    """The owner of a message with a subject of :func:`task_logs`."""
    _, _, pool, _, named = subject.split(".")
    return LogOwner(pool, named if named.startswith(_NAMESPACE) else "")


def task_logs_owned_by(owner: LogOwner) -> str:
    """The pattern of the messages of an owner; without a namespace, of its pool."""
    return f"noetl.logs.{owner.pool}.*.{owner.namespace or '*'}"


def task_logs_of(execution_id: str) -> str:
    """The pattern of the output of all tasks of an execution.

    Raises:
        UsageError: the id is not valid in a subject.
    """
    return f"noetl.logs.*.{check_id(execution_id)}.*"


_LOGS_KEY: Final = "$logs/"


def logs_key(execution_id: str) -> str:
    """The key that stands for the logs of an execution among the keys of objects to delete (:data:`PURGE`)."""
    return _LOGS_KEY + execution_id


def named_by_logs_key(key: str) -> str | None:
    """The execution whose logs a key stands for; ``None`` for the key of an object."""
    return key.removeprefix(_LOGS_KEY) if key.startswith(_LOGS_KEY) else None

"""Messages of executions to a limit by key, and its stored slots (LANGUAGE §15)."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from noetl_stream.model.aggregates.fact_parts import AggregateFact
from noetl_stream.model.events import OnLimit, Rate
from noetl_stream.model.ids import derive

LIMIT: Final = "Limit"

MAX_KEY_CHARS: Final = 200

_IN: Final = "//"


def is_key(text: str) -> bool:
    return 0 < len(text) <= MAX_KEY_CHARS and not text.isspace() and "\0" not in text


def limit_id(key: str, namespace: str = "") -> str:
    """The id of the limit of a key in a namespace; without a namespace, that of a shared key.

    Keys and namespaces are arbitrary text, so the cause includes the length of the namespace, and another word for its
    kind.
    """
    cause = ("limit in", len(namespace), namespace, key) if namespace else ("limit", key)
    return f"limit-{derive(*cause)}"


def row_key(key: str, namespace: str = "") -> str:
    """The text by which the limits of all namespaces are listed in order: no namespace has two slashes in a row. A long
    namespace is cut to fit the narrowest index.
    """
    if len(namespace) > MAX_KEY_CHARS:
        namespace = f"{namespace[:MAX_KEY_CHARS]}~{derive(namespace)}"
    return f"{key}{_IN}{namespace}"


def shown_limit(concurrency: int | None, rate: Rate | None) -> str:
    """A limit in words."""
    parts = [f"{concurrency} at once"] if concurrency is not None else []
    if rate is not None:
        parts.append(f"{rate.per_s:g} per second" + (f" with bursts of {rate.burst}" if rate.burst > 1 else ""))
    return " and ".join(parts)


class LimitFact(AggregateFact, frozen=True):
    """Base of messages to a limit. ``step_run_id`` is empty if the whole execution asks, ``slot_id`` unless a task
    asks; ``namespace`` is that of the key, empty for a shared key.
    """

    of: ClassVar = LIMIT

    key: str
    execution_id: str
    step_run_id: str = ""
    slot_id: str = ""
    namespace: str = ""

    @property
    def holder(self) -> str:
        return holder_of(self.execution_id, self.step_run_id, self.slot_id)

    @property
    def limit_id(self) -> str:
        return limit_id(self.key, self.namespace)


class SlotAsked(LimitFact, frozen=True, tag="limit.slot_asked"):
    """A slot is requested. ``concurrency`` and ``rate`` are those of the key in the playbook at ``path``."""

    path: str = ""
    step: str = ""
    concurrency: int | None = None
    rate: Rate | None = None
    on_limit: OnLimit = "queue"
    task: str = ""


class SlotHeld(LimitFact, frozen=True, tag="limit.slot_held"):
    """A requested slot has been granted: EVENTS has it, and Postgres was restored to an earlier state."""


class SlotReturned(LimitFact, frozen=True, tag="limit.slot_returned"):
    """A slot is returned, or no longer waited for."""


def holder_of(execution_id: str, step_run_id: str, slot_id: str) -> str:
    """The holder of a slot, as one id."""
    return slot_id or step_run_id or execution_id


class LimitSlot(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A slot held since ``granted_ms``, or waiting while that is 0. ``number`` counts slots in the order of requests.
    ``is_ending``: its execution was ordered to end in favour of a newer one.
    """

    number: int
    execution_id: str
    step_run_id: str = ""
    path: str = ""
    step: str = ""
    on_limit: OnLimit = "queue"
    asked_ms: int = 0
    granted_ms: int = 0
    warning: str = ""
    is_ending: bool = False
    slot_id: str = ""
    task: str = ""

    @property
    def holder(self) -> str:
        return holder_of(self.execution_id, self.step_run_id, self.slot_id)

    @property
    def may_be_ended(self) -> bool:
        """Whether a newer execution may take the slot (``cancel_running``)."""
        takes_part = bool(self.granted_ms) or self.on_limit == "cancel_running"
        return takes_part and not self.step_run_id and not self.is_ending


class LimitState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The limit of one key in a ``namespace``, as counts; its slots are rows of their own. It is removed a while after
    its last holder or waiter. ``used_by`` are the playbooks that asked for it, the newest last: a bounded number.

    ``concurrency`` and ``rate`` were last set by the playbook ``set_by``; ``replaced`` are their former values.
    ``free_us`` is when the bucket of the rate is full again, in microseconds since the epoch; ``timer_ms`` when the
    limit's timer is due, 0 without one. ``next_number`` is that of the next requested slot; ``catching_up``: slots wait
    because not all holders are known.
    """

    key: str
    concurrency: int | None = None
    rate: Rate | None = None
    set_by: str = ""
    set_ms: int = 0
    replaced: str = ""
    held: int = 0
    queued: int = 0
    next_number: int = 1
    free_us: int = 0
    timer_ms: int = 0
    at_ms: int = 0
    catching_up: bool = False
    namespace: str = ""
    used_by: tuple[str, ...] = ()

"""Limits by key: their holders and waiters (LANGUAGE §15)."""

from __future__ import annotations

import msgspec

from noetl_stream.model.envelope import Time
from noetl_stream.ports.operations.documents import Document, DocumentPage


class RateDocument(Document, frozen=True):
    """``per_s`` on average, ``burst`` at once after a rest."""

    per_s: float
    burst: int


class SlotDocument(Document, frozen=True):
    """Who holds a key, or waits for it, ``since`` when: a run of ``step``, or a whole execution if that is null; with a
    ``task``, an attempt of it.
    """

    execution_id: str
    path: str
    step: str | None
    step_run_id: str | None
    task: str | None
    since: Time


class LimitDocument(Document, frozen=True):
    """A key that is held or waited for.

    Attributes:
        namespace: Whose it is: a path, or empty if namespaces share it.
        concurrency: How many may hold it at once; null if only its rate is limited.
        set_by: The playbook that last said how much it allows, at ``set_at``; empty if the caller may not see it.
        replaced: What it was before, if another playbook said otherwise; else empty.
        next_at: When its rate gives the next slot to who waits; null if it is not the rate that they wait for.
        catching_up: Whether it gives out nothing, since Postgres was put back and not all who hold it are known yet.
        used_by: The playbooks that asked for it, the newest last: a bounded number, of those that the caller may see.
    """

    key: str
    namespace: str
    concurrency: int | None
    rate: RateDocument | None
    held: int
    queued: int
    set_by: str
    set_at: Time
    replaced: str
    next_at: Time | None
    catching_up: bool
    used_by: list[str]


class LimitWithSlotsDocument(LimitDocument, frozen=True):
    """With those that have held it longest, and the first that wait, in order: a bounded number of each, of which the
    caller sees those that it may see. ``held`` and ``queued`` count all.
    """

    holders: list[SlotDocument]
    waiting: list[SlotDocument]


class LimitPage(DocumentPage[LimitDocument], frozen=True):
    """By key and namespace."""


class AwaitedSlotDocument(Document, frozen=True, omit_defaults=True):
    """A slot of a key in a ``namespace`` that is waited for. Only ``why`` gives more: its ``place`` among those that
    wait, how many these are, how many hold the key, and the first of them that the caller may see.
    """

    key: str
    namespace: str = ""
    place: int | None = None
    queued: int | None = None
    held: int | None = None
    concurrency: int | None = None
    next_at: Time | None = None
    catching_up: bool = False
    holders: list[SlotDocument] = msgspec.field(default_factory=list)

"""Many executions at once. Each is acted on as it would be alone; what concerns them all ends the call."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from noetl_stream.concurrency import for_each
from noetl_stream.errors import NoetlError, NotReady, Unreachable, UsageError
from noetl_stream.model.events import CancelRequested, InterventionFact, PauseRequested, ResumeRequested
from noetl_stream.model.ids import derive, id_beside, is_valid_id, uuid7
from noetl_stream.model.status import ENDED, ExecutionStatus
from noetl_stream.operations.executions.reading.tallies import groups_of, histogram_of
from noetl_stream.operations.recording import OnRecord
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import ExecutionFilter, Executions, RequestIds
from noetl_stream.ports.operations.selections import (
    APPLIES_TO,
    MAX_SELECTED,
    BulkDocument,
    BulkItemDocument,
    BulkOrder,
    BulkOutcome,
    BulkVerb,
    ExecutionGroupsDocument,
    ExecutionHistogramDocument,
)
from noetl_stream.ports.stores.store import Store

BEGUN_WITHIN_S: Final = 15.0
"""What has not begun by then is left, so that a call is answered in time."""

_FACTS: Final[dict[BulkVerb, type[InterventionFact]]] = {
    "cancel": CancelRequested,
    "pause": PauseRequested,
    "resume": ResumeRequested,
}


class _Subject(msgspec.Struct, frozen=True, gc=False):
    """An execution, and what is known of it before; nothing if it is not there, or was named and not looked up."""

    execution_id: str
    path: str | None = None
    status: ExecutionStatus | None = None

    def became(self, outcome: BulkOutcome, **more: Any) -> BulkItemDocument:
        return BulkItemDocument(self.execution_id, outcome, self.path, self.status, **more)


class DirectSelections:
    """:class:`~noetl_stream.ports.operations.selections.Selections`, where each method is described.

    Args:
        record: Records who deletes which execution: a call is recorded as a whole.
    """

    def __init__(self, executions: Executions, store: Store, clock: Clock, record: OnRecord) -> None:
        self._executions = executions
        self._store = store
        self._clock = clock
        self._record = record

    async def act(self, wanted: BulkOrder, by: str, ids: RequestIds | None = None) -> BulkDocument:
        if (wanted.options.step is not None) != (wanted.verb == "rerun"):
            raise UsageError("a rerun, and nothing else, starts from a step", hint="`retry` starts where it failed")
        subjects, following = await self._subjects(wanted)
        if wanted.dry_run:
            items = [_tried(wanted.verb, subject) for subject in subjects]
        else:
            ids = ids or RequestIds(self._new_id(), self._new_id())
            items = await self._acted(wanted, subjects, by, ids)
        return BulkDocument(items, dict(Counter(item.outcome for item in items)), following)

    async def histogram(self, chosen: ExecutionFilter, bars: int) -> ExecutionHistogramDocument:
        return await histogram_of(self._store, chosen, bars, self._clock.now_ms())

    async def groups(self, chosen: ExecutionFilter, key: str) -> ExecutionGroupsDocument:
        return await groups_of(self._store, chosen, key)

    async def _subjects(self, wanted: BulkOrder) -> tuple[list[_Subject], str | None]:
        if wanted.ids is None:
            page = await self._executions.page(wanted.selected, min(wanted.limit, MAX_SELECTED), wanted.cursor)
            return [_Subject(one.execution_id, one.path, one.status) for one in page.items], page.next
        named = list(dict.fromkeys(wanted.ids))
        if len(named) > MAX_SELECTED:
            raise UsageError(f"{len(named)} ids are too many", hint=f"send at most {MAX_SELECTED} at once")
        rows = await self._store.executions([one for one in named if is_valid_id(one)])
        known = {one: _Subject(one, row.path, row.status) for one, row in rows.items()}
        return [known.get(one) or _Subject(one) for one in named], None

    async def _acted(
        self, wanted: BulkOrder, subjects: list[_Subject], by: str, ids: RequestIds
    ) -> list[BulkItemDocument]:
        items: dict[str, BulkItemDocument] = {}
        until_s = self._clock.monotonic_s() + BEGUN_WITHIN_S

        async def one(subject: _Subject) -> None:
            if self._clock.monotonic_s() >= until_s:
                item = subject.became("left", detail="the time was over")
            else:
                item = await self._outcome(wanted, subject, by, ids)
            items[subject.execution_id] = item

        await for_each(subjects, one)
        return [items[subject.execution_id] for subject in subjects]

    async def _outcome(self, wanted: BulkOrder, subject: _Subject, by: str, ids: RequestIds) -> BulkItemDocument:
        try:
            return await self._done(wanted, subject, by, ids)
        except (Unreachable, NotReady):
            raise  # the others would fail alike
        except NoetlError as error:
            return subject.became("refused", detail=error.message, hint=error.hint)

    async def _done(self, wanted: BulkOrder, subject: _Subject, by: str, ids: RequestIds) -> BulkItemDocument:
        execution_id, options = subject.execution_id, wanted.options
        request_id = derive(ids.request_id, wanted.verb, execution_id)
        match wanted.verb:
            case "delete":
                async with self._record("deleteExecution", execution_id, by):
                    await self._executions.delete(execution_id, by)
                return subject.became("done")
            case "retry" | "rerun":
                new_ids = RequestIds(id_beside(ids.execution_id, request_id), request_id)
                made = await self._executions.rerun(execution_id, options, by, new_ids)
                return subject.became("done", made=made.execution_id)
        fact = _FACTS[wanted.verb](request_id, by, options.reason, options.correlation_id)
        answer = await self._executions.ask(execution_id, fact)
        return subject.became("already" if answer.already else "done", position=answer.position)

    def _new_id(self) -> str:
        return uuid7(self._clock.now_ms(), self._clock.random_bytes(10))


def _tried(verb: BulkVerb, subject: _Subject) -> BulkItemDocument:
    """What would become of it, as far as its status says."""
    status = subject.status
    if status is None:
        why: str | None = f"execution {subject.execution_id} not found"
    elif status in APPLIES_TO[verb]:
        why = None
    elif status in ENDED:
        why = f"it has ended ({status})"
    elif APPLIES_TO[verb] == ENDED or verb == "retry":
        why = f"it has not ended ({status})"
    else:
        why = f"it is {status}"
    return subject.became("would" if why is None else "skipped", detail=why)

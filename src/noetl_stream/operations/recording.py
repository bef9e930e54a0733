"""Changes recorded in the audit where there is no gateway to do so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from noetl_stream.ports.operations import port_of
from noetl_stream.ports.operations.verbs import Verb, Verbs


class OnRecord(Protocol):
    """Records an operation in the audit."""

    def __call__(self, operation: str, target: str, by: str, reason: str = "") -> AbstractAsyncContextManager[None]:
        """A context in which to run an operation, given its OpenAPI id, its target, the actor and the reason."""


class RecordedOperations:
    """Operations whose changes are recorded unless an event records them."""

    def __init__(self, operations: object, record: OnRecord) -> None:
        self._operations = operations
        self._record = record

    def __getattr__(self, noun: str) -> Any:
        part = getattr(self._operations, noun)
        found = part if noun == "feed" else RecordedVerbs(port_of(noun), part, self._record)
        setattr(self, noun, found)
        return found


class RecordedVerbs(Verbs):
    """A port whose changes are recorded unless an event records them: each verb with an operation of its own."""

    def __init__(self, port: type, verbs: object, record: OnRecord) -> None:
        super().__init__(port)
        self._verbs = verbs
        self._record = record

    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        ask = getattr(self._verbs, verb.name)
        if not verb.changes or not verb.operation:
            return await ask(*args, **options)
        given = verb.arguments(args, options)
        async with self._record(verb.operation, verb.target_of(given), given["by"], given.get("reason", "")):
            return await ask(*args, **options)

"""What is shown of an execution, without the secrets that it was given (LANGUAGE §11).

Workers redact what they report. A worker that never read a secret cannot, nor can a person who types it; so it is
hidden once more where it is shown, also when a credential has another value since, or none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.events import InterventionFact
from noetl_stream.model.json import codec
from noetl_stream.model.redaction import Redactor, texts_of
from noetl_stream.ports.operations.executions import (
    AcceptedDocument,
    CtxDocument,
    ExecutionDocument,
    ExecutionFilter,
    ExecutionPage,
    Executions,
    IterationPage,
    RequestIds,
    RerunOptions,
    ResultDocument,
    Start,
    StepRunDocument,
    StepRunRange,
    StepRunResultDocument,
    StepRunsDocument,
    WhyDocument,
)
from noetl_stream.ports.operations.logs import LogFilter, LogPage
from noetl_stream.ports.stores.credentials import Credentials, SealedValue, giver_of
from noetl_stream.sealing.keys import KeyRing, SealedEnvelope, decrypt

log = logging.getLogger(__name__)

Shown = TypeVar("Shown")


class _OfExecution(Protocol):
    @property
    def execution_id(self) -> str: ...


Listed = TypeVar("Listed", bound=_OfExecution)

REDACTORS_KEPT: Final = 1_000
MAX_TEXTS_GIVEN: Final = 200
"""How many texts from one giver are hidden, the newest: values and their lines."""
MAX_SIGNS_GIVEN: Final = 1_000
"""How many of their characters, other than letters and digits, are also searched for in escaped form: this bounds what
one worker can make a gateway compute.
"""

ENGINE_FIELDS: Final = frozenset(
    {
        "id",
        "execution_id",
        "step_run_id",
        "event_id",
        "entity_id",
        "source",
        "entity",
        "name",
        "status",
        "state",
        "place",
    }
)
"""Never hidden, since the engine writes them: else a secret like ``completed`` would hide the end."""


class UsedSecrets:
    """Hides the values that an execution was given, from the credential store or read by workers.

    Args:
        keys: The keys they are encrypted with; without them nothing is hidden here.
    """

    def __init__(self, credentials: Credentials, keys: KeyRing | None) -> None:
        self._credentials = credentials
        self._keys = keys
        self._redactors: LruCache[tuple[bytes, ...], Redactor] = LruCache(REDACTORS_KEPT)

    async def redactors(self, execution_ids: Collection[str]) -> Mapping[str, Redactor]:
        """A redactor for each of these executions that was given any.

        Raises:
            Unreachable: the database does not answer; nothing is shown then.
        """
        if self._keys is None or not execution_ids:
            return {}
        used = await self._credentials.used_by(execution_ids)
        return {execution_id: await self._redactor(values, self._keys) for execution_id, values in used.items()}

    async def hide_each(self, documents: Sequence[Listed]) -> list[Listed]:
        """``documents``, each of an execution, without its secrets. Raises like :meth:`redactors`."""
        redactors = await self.redactors({one.execution_id for one in documents})
        return await asyncio.to_thread(hidden_each, redactors, documents) if redactors else list(documents)

    async def hide(self, execution_id: str, document: Shown) -> Shown:
        """``document`` without them. Raises like :meth:`redactors`."""
        redactor = (await self.redactors((execution_id,))).get(execution_id)
        return document if redactor is None else await asyncio.to_thread(hidden, redactor, document)

    async def _redactor(self, values: list[SealedValue], keys: KeyRing) -> Redactor:
        key = tuple(one.sealed for one in values)  # a name that is deleted and set again begins with version 1 again
        redactor = self._redactors.get(key)
        if redactor is None:
            redactor = await asyncio.to_thread(_redactor_of, values, keys)
            self._redactors.put(key, redactor)
        return redactor


def _redactor_of(values: list[SealedValue], keys: KeyRing) -> Redactor:
    redactor = Redactor()
    texts = _texts_by_giver(values, keys)
    of_credentials = texts.pop("", [])
    for given in texts.values():
        redactor.learn_texts(given[: -MAX_TEXTS_GIVEN - 1 : -1], MAX_SIGNS_GIVEN)
    redactor.learn_texts(of_credentials)  # last: what workers say never takes their place
    return redactor


def _texts_by_giver(values: Iterable[SealedValue], keys: KeyRing) -> dict[str, list[str]]:
    """The texts to hide, oldest first, by who gave the values: empty for the store."""
    found: dict[str, list[str]] = {}
    for name, version, key_id, sealed in values:
        try:
            value = decrypt(keys, name, version, SealedEnvelope(key_id, sealed))
        except NoetlError as error:
            log.warning("cannot hide a secret: %s", error)
            continue
        # Of a value with very many lines, the whole and its first lines are hidden.
        found.setdefault(giver_of(name), []).extend(reversed(list(texts_of(codec.decode_json(value)))))
    return found


class RedactedExecutions:
    """:class:`~noetl_stream.ports.operations.executions.Executions` that show no secret of an execution."""

    def __init__(self, executions: Executions, secrets: UsedSecrets) -> None:
        self._executions = executions
        self._secrets = secrets

    async def start(self, wanted: Start, by: str, ids: RequestIds | None = None) -> ExecutionDocument:
        return await self._hide(await self._executions.start(wanted, by, ids))

    async def page(self, chosen: ExecutionFilter, limit: int, cursor: str | None) -> ExecutionPage:
        found = await self._executions.page(chosen, limit, cursor)
        return ExecutionPage(await self._secrets.hide_each(found.items), found.next)

    async def get(self, execution_id: str) -> ExecutionDocument:
        return await self._hide(await self._executions.get(execution_id))

    async def wait(self, execution_id: str, timeout_s: float) -> ExecutionDocument:
        return await self._hide(await self._executions.wait(execution_id, timeout_s))

    async def result(self, execution_id: str) -> ResultDocument:
        return await self._secrets.hide(execution_id, await self._executions.result(execution_id))

    async def steps(self, execution_id: str) -> list[StepRunDocument]:
        return await self._secrets.hide(execution_id, await self._executions.steps(execution_id))

    async def runs(self, execution_id: str, wanted: StepRunRange) -> StepRunsDocument:
        return await self._secrets.hide(execution_id, await self._executions.runs(execution_id, wanted))

    async def run_result(self, execution_id: str, step_run_id: str) -> StepRunResultDocument:
        return await self._secrets.hide(execution_id, await self._executions.run_result(execution_id, step_run_id))

    async def iterations(self, execution_id: str, step_run_id: str, limit: int, cursor: str | None) -> IterationPage:
        found = await self._executions.iterations(execution_id, step_run_id, limit, cursor)
        return IterationPage(await self._secrets.hide(execution_id, found.items), found.next)

    async def events(self, execution_id: str, after: int, limit: int) -> list[EventDocument]:
        return await self._secrets.hide(execution_id, await self._executions.events(execution_id, after, limit))

    async def logs(self, execution_id: str, chosen: LogFilter, after: str, limit: int) -> LogPage:
        return await self._executions.logs(execution_id, chosen, after, limit)  # hidden there, before it is searched

    async def ctx(self, execution_id: str) -> CtxDocument:
        return await self._secrets.hide(execution_id, await self._executions.ctx(execution_id))

    async def ask(self, execution_id: str, fact: InterventionFact) -> AcceptedDocument:
        return await self._executions.ask(execution_id, fact)

    async def rerun(
        self, execution_id: str, wanted: RerunOptions, by: str, ids: RequestIds | None = None
    ) -> ExecutionDocument:
        return await self._hide(await self._executions.rerun(execution_id, wanted, by, ids))

    async def why(self, execution_id: str) -> WhyDocument:
        return await self._secrets.hide(execution_id, await self._executions.why(execution_id))

    async def delete(self, execution_id: str, by: str) -> None:
        await self._executions.delete(execution_id, by)

    async def _hide(self, document: ExecutionDocument) -> ExecutionDocument:
        return await self._secrets.hide(document.execution_id, document)


def hidden(redactor: Redactor, document: Shown) -> Shown:
    """``document``, a struct or plain JSON, without the secrets. :data:`ENGINE_FIELDS` stay, and numbers that are
    fields: times and counts.
    """
    return cast(Shown, _hidden(redactor, document))


def hidden_each(redactors: Mapping[str, Redactor], documents: Iterable[Listed]) -> list[Listed]:
    """``documents``, each of an execution, likewise."""
    return [
        one if (redactor := redactors.get(one.execution_id)) is None else hidden(redactor, one) for one in documents
    ]


def _hidden(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        changed = {
            name: new
            for name in value.__struct_fields__
            if name not in ENGINE_FIELDS and (new := _hidden(redactor, old := getattr(value, name))) is not old
        }
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, list) and any(isinstance(item, msgspec.Struct) for item in value):
        return [_hidden(redactor, item) for item in value]
    if isinstance(value, dict | list):
        return redactor.value(value)
    return value

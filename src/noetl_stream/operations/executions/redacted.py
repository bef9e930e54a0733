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
from msgspec.structs import replace

from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.model.json import codec
from noetl_stream.model.search_terms import error_terms, label_terms, word_terms
from noetl_stream.model.secrets.credential import Redactor, texts_of
from noetl_stream.operations.paging import cursor_of, page_size
from noetl_stream.ports.operations.documents import DocumentPage
from noetl_stream.ports.operations.executions import (
    ExecutionFilter,
    ExecutionPage,
    Executions,
    ListedExecutionDocument,
)
from noetl_stream.ports.operations.verbs import EXECUTIONS, Verb, Verbs, verb_of
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

LOOKED_AT: Final = 5_000
"""How many executions are looked at for a page of those that show what was searched for; then the page is short."""

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


class Redacted(Verbs):
    """A port whose answers show no secret of the executions that they are about."""

    def __init__(self, port: type, verbs: object, secrets: UsedSecrets) -> None:
        super().__init__(port)
        self._verbs = verbs
        self._secrets = secrets

    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        answer = await getattr(self._verbs, verb.name)(*args, **options)
        if not verb.secrets:
            return answer
        given = verb.arguments(args, options)
        about = [given[name] for name in EXECUTIONS if name in given]
        if not about and isinstance(answer, DocumentPage):
            return replace(answer, items=await self._secrets.hide_each(answer.items))
        about.append(getattr(answer, "execution_id", None))
        for execution_id in filter(None, dict.fromkeys(about)):
            answer = await self._hide(execution_id, answer)
        return answer

    async def _hide(self, execution_id: str, answer: Any) -> Any:
        """``answer`` without the secrets of one execution. A cursor stays as it is."""
        if isinstance(answer, DocumentPage):
            return replace(answer, items=await self._secrets.hide(execution_id, answer.items))
        return await self._secrets.hide(execution_id, answer)


class RedactedExecutions(Redacted):
    """Executions without their secrets. A list with a filter finds what it shows: no filter tells what is hidden."""

    def __init__(self, executions: object, secrets: UsedSecrets) -> None:
        super().__init__(Executions, executions, secrets)

    async def page(self, chosen: ExecutionFilter, limit: int, cursor: str | None) -> ExecutionPage:
        verb = verb_of(Executions.page)
        if chosen.error is None and not chosen.labels:
            page: ExecutionPage = await self._ask(verb, chosen, limit, cursor)
            return page
        size, found, looked_at = page_size(limit), list[ListedExecutionDocument](), 0
        while True:
            page = await self._ask(verb, chosen, size + 1 - len(found), cursor)
            found += (one for one in page.items if _matches(chosen, one))
            cursor, looked_at = page.next, looked_at + len(page.items)
            if len(found) > size:
                return ExecutionPage(found[:size], cursor_of(found[size - 1].execution_id))
            if cursor is None or looked_at >= LOOKED_AT:
                return ExecutionPage(found, cursor)


def _matches(chosen: ExecutionFilter, shown: ListedExecutionDocument) -> bool:
    words = word_terms(chosen.error or "")
    if words and (shown.error is None or not words <= error_terms(msgspec.structs.asdict(shown.error))):
        return False
    return label_terms(chosen.labels) <= label_terms(shown.labels)


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
        return replace(value, **changed) if changed else value
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, list) and any(isinstance(item, msgspec.Struct) for item in value):
        return [_hidden(redactor, item) for item in value]
    if isinstance(value, dict | list):
        return redactor.value(value)
    return value

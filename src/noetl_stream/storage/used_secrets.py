"""The secrets that executions were given, and their removal from what is shown (LANGUAGE §11)."""

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
from noetl_stream.model.secrets.credential import Redactor, texts_of
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
"""The number of newest texts from one giver that are hidden: values and their lines."""
MAX_SIGNS_GIVEN: Final = 1_000
"""The number of their characters, except letters and digits, that are also searched for in escaped form; it bounds what
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
"""Texts that are never hidden, since the engine writes them: a secret like ``completed`` would hide the end."""


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
        """A redactor for each of these executions that was given any secrets.

        Raises:
            Unreachable: the database does not answer; nothing is shown then.
        """
        if self._keys is None or not execution_ids:
            return {}
        used = await self._credentials.used_by(execution_ids)
        return {execution_id: await self._redactor(values, self._keys) for execution_id, values in used.items()}

    async def inherit(self, pairs: Collection[tuple[str, str]]) -> None:
        """Hides in the second execution of each pair the secrets that are hidden in the first.

        Raises:
            Unreachable: the database does not answer.
        """
        if self._keys is not None:
            await self._credentials.inherit_uses(pairs)

    async def hide_each(self, documents: Sequence[Listed]) -> list[Listed]:
        """``documents``, each of an execution, without its secrets. Raises like :meth:`redactors`."""
        redactors = await self.redactors({one.execution_id for one in documents})
        return await asyncio.to_thread(hidden_each, redactors, documents) if redactors else list(documents)

    async def hide(self, execution_id: str, document: Shown) -> Shown:
        """``document`` without them. Raises like :meth:`redactors`."""
        redactor = (await self.redactors((execution_id,))).get(execution_id)
        return document if redactor is None else await asyncio.to_thread(hidden, redactor, document)

    async def _redactor(self, values: list[SealedValue], keys: KeyRing) -> Redactor:
        key = tuple(one.sealed for one in values)  # versions of a deleted name start over at 1
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
    redactor.learn_texts(of_credentials)  # last: reports of workers never replace them
    return redactor


def _texts_by_giver(values: Iterable[SealedValue], keys: KeyRing) -> dict[str, list[str]]:
    """The texts to hide, oldest first, by the giver of the values: empty for the store."""
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


def hidden(redactor: Redactor, document: Shown) -> Shown:
    """``document``, a struct or plain JSON, without the secrets. :data:`ENGINE_FIELDS` stay, and numbers that are
    fields: times and counts.
    """
    return cast(Shown, _hidden(redactor, document))


def hidden_each(redactors: Mapping[str, Redactor], documents: Iterable[Listed]) -> list[Listed]:
    """``documents``, each of an execution, without its secrets."""
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

"""Answers over NATS, by any server: requests, playbooks, gathered results, the catalog, credentials (PROTOCOL §4)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from noetl_stream.errors import BlobMissing, NoetlError, PayloadRefused, UsageError
from noetl_stream.model import codec
from noetl_stream.model.outcome import Reference
from noetl_stream.ports import subjects
from noetl_stream.ports.blobs import gather_iterations
from noetl_stream.ports.bus import Bus, Handler, Subscription
from noetl_stream.ports.catalog import ADDRESS_FORM, Address, find_entry, read_address
from noetl_stream.server.parts import ServerParts

log = logging.getLogger(__name__)

GROUP = "noetl-servers"

Answer = Callable[[list[str], bytes], Awaitable[Any]]
"""Called with the names in the subject after ``noetl.ask.<what>``, and the body."""


def answering(bus: Bus, answer: Answer) -> Handler:
    """Replies with the JSON of ``answer``; with ``null`` if a store is unreachable: asked again, another server may
    answer.
    """

    async def handle(subject: str, body: bytes, reply: str) -> None:
        if not reply:
            return
        try:
            found = await answer(subject.split(".")[3:], body)
        except NoetlError as error:
            log.warning("cannot answer %s: %s", subject, error)
            found = None
        bus.send(reply, codec.encode(found))

    return handle


class RequestResponder:
    """Listens in one queue group with all servers; each request is answered by one of them."""

    def __init__(self, parts: ServerParts) -> None:
        self._ports = parts.ports
        self._plans = parts.plans
        self._owner = parts.owner
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Starts answering."""
        answers: dict[str, Answer] = {
            subjects.PING: self._ping,
            f"{subjects.ASK_REQUEST}.*.*": self._request,
            f"{subjects.ASK_PLAYBOOK}.*": self._playbook,
            f"{subjects.ASK_RESULT}.*.*": self._result,
            subjects.ASK_CATALOG: self._catalog_entry,
        }
        if self._ports.secrets is not None:
            answers[subjects.ASK_SECRET] = self._ports.secrets.reply
        bus = self._ports.bus
        for subject, answer in answers.items():
            self._subscriptions.append(await bus.listen(subject, answering(bus, answer), GROUP))

    async def close(self) -> None:
        """Stops answering, until it is opened again."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.close()

    async def _ping(self, names: list[str], body: bytes) -> dict[str, Any]:
        return {"server": self._owner}

    async def _request(self, names: list[str], body: bytes) -> dict[str, Any]:
        execution_id, request_id = names
        row = await self._ports.store.request(execution_id, request_id)
        if row is None:
            return {"known": False}
        return {"known": True, "answer": codec.decode_json(row.answer), "position": row.position}

    async def _playbook(self, names: list[str], body: bytes) -> dict[str, Any]:
        known = await self._plans.load(names[0])
        if known.row is None:
            return {"known": False}
        return {"known": True, "source": known.row.source, "path": known.row.path}

    async def _result(self, names: list[str], body: bytes) -> Reference | dict[str, Any]:
        execution_id, step_run_id = names
        try:
            data = await gather_iterations(self._ports.store, self._ports.blobs, execution_id, step_run_id)
        except BlobMissing as error:
            return {"lost": error.message}
        checksum = "sha256:" + hashlib.sha256(data).hexdigest()
        reference = Reference("nats", f"{execution_id}/{step_run_id}/loop", len(data), checksum)
        await self._ports.blobs.put(reference.key, data)
        return reference

    async def _catalog_entry(self, names: list[str], body: bytes) -> dict[str, Any]:
        """Resolves a playbook for workers that run ``kind: playbook`` (LANGUAGE §12).

        ``{"path": …, "version": … or null}`` is answered with ``{"known": true, "digest", "path", "version"}``, the
        version as written by people, or with ``{"known": false, "reason"}``.
        """
        try:
            entry = await find_entry(self._ports.catalog, _address(codec.decode_json(body)))
        except (UsageError, PayloadRefused) as error:
            return {"known": False, "reason": str(error)}
        return {"known": True, "digest": entry.digest, "path": entry.path, "version": entry.known_as}


def _address(question: Any) -> Address:
    path = question.get("path") if isinstance(question, dict) else None
    version = question.get("version") if isinstance(question, dict) else None
    if isinstance(path, str) and isinstance(version, str | None):
        address = read_address(path if version is None else f"{path}@{version}")
        if address is not None and (address.version is None) == (version is None):
            return address
    raise UsageError(f"path {path!r} and version {version!r} are not a playbook address", hint=f"use {ADDRESS_FORM}")

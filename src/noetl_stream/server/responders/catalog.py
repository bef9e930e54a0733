"""Resolves a path and version to a playbook, for workers that run ``kind: playbook`` (LANGUAGE §12)."""

from __future__ import annotations

import logging
from typing import Any

from noetl_stream.errors import PayloadRefused, Unreachable, UsageError
from noetl_stream.model import codec
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.ports.catalog import Catalog
from noetl_stream.ports.catalog_address import ADDRESS_FORM, Address, find_entry, read_address

log = logging.getLogger(__name__)


class CatalogResponder:
    """Answers on :data:`~noetl_stream.ports.subjects.ASK_CATALOG`; bodies are JSON.

    ``{"path": …, "version": … or null}`` is answered with ``{"known": true, "digest", "path", "version"}``, the version
    as written by people, or with ``{"known": false, "reason"}``.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def listen(self, bus: Bus, group: str) -> Subscription:
        """Starts answering, sharing the load with the others of ``group``."""

        async def handle(subject: str, body: bytes, reply: str) -> None:
            try:
                answer = await self.answer(body)
            except Unreachable as error:
                # No answer: the worker retries, and another server may reach the database.
                log.warning("cannot resolve a playbook: %s", error)
                return
            if reply:
                bus.send(reply, codec.encode(answer))

        return await bus.listen(subjects.ASK_CATALOG, handle, group)

    async def answer(self, body: bytes) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            Unreachable: the database does not answer.
        """
        try:
            entry = await find_entry(self._catalog, _address(codec.decode_json(body)))
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

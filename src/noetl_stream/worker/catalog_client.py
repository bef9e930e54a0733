"""Resolves a playbook's path and version, by asking any server (LANGUAGE §12 *playbook*)."""

from __future__ import annotations

from typing import NamedTuple

from noetl_stream.errors import NoetlError
from noetl_stream.model import codec
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.worker.waiting import ask


class PlaybookUnknown(NoetlError):
    """The catalog has no such playbook, or the version is ambiguous; the message comes from the server."""


class PinnedPlaybook(NamedTuple):
    """A playbook pinned when it was resolved. ``version`` is the author's, or the revision if there is none."""

    digest: str
    path: str
    version: str


class CatalogClient:
    """Asks on :data:`~noetl_stream.ports.subjects.ASK_CATALOG`; answers are not cached, since the latest may change."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock

    async def resolve(self, path: str, version: str | None) -> PinnedPlaybook:
        """The playbook at ``path``, the latest without ``version``; waits until a server answers.

        Raises:
            PlaybookUnknown: it is not registered. A retry helps only after somebody registers it.
        """
        question = codec.encode({"path": path, "version": version})
        answer = codec.decode_json(await ask(self._bus, self._clock, subjects.ASK_CATALOG, question))
        if not answer["known"]:
            raise PlaybookUnknown(answer["reason"])
        return PinnedPlaybook(answer["digest"], answer["path"], answer["version"])

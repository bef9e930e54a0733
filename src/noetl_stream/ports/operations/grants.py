"""Grants of playbooks that admins register, where no file of the operator has them."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Protocol

from msgspec import Meta

from noetl_stream.model.envelope import Time
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.verbs import PlaybookPath, verb

Origin = Literal["file", "registered", "none"]

MAX_REVISION: Final = 2**31 - 1
Revision = Annotated[int, Meta(ge=1, le=MAX_REVISION)]

DENIED: Final = "see or change the grants of all playbooks"


class GrantsDocument(Document, frozen=True):
    """Grants as they are written. ``origin`` says where: in the ``file`` of the operator, ``registered``, or nowhere.

    ``revision`` is that of registered grants, which count from 1; otherwise 0.
    """

    origin: Origin
    revision: int
    source: str
    registered: Time | None = None
    registered_by: str | None = None


class PlaybookGrantsDocument(Document, frozen=True):
    """What a playbook may use, by sort, as names that may hold ``*``. ``limits`` are keys shared with others."""

    path: str
    namespace: str
    credentials: list[str]
    calls: list[str]
    pools: list[str]
    kinds: list[str]
    limits: list[str]


class GrantsRegistry(Protocol):
    @verb("GET", "/grants", "getGrants", "admin", denied=DENIED, refuses=("not-found",))
    async def get(self, revision: Revision | None = None) -> GrantsDocument:
        """Get the grants in force, or a revision of those that were registered.

        Raises:
            NotFound: there is no such revision.
        """

    @verb(
        "PUT",
        "/grants/{revision}",
        "putGrants",
        "admin",
        denied=DENIED,
        refuses=("conflict", "version-mismatch"),
        description="`revision` is one more than that of the grants you changed, 1 if there were none. "
        "Every server and gateway has them within a few seconds.",
    )
    async def put(self, revision: Revision, source: bytes, by: str, reason: str = "") -> GrantsDocument:
        """Register grants as the next revision.

        The same caller may repeat it with the same text.

        Raises:
            UsageError: the text is invalid; the message has the line.
            Conflict: a file of the operator says what playbooks may use.
            VersionMismatch: another revision is the next: somebody else has changed the grants.
        """

    @verb("GET", "/playbooks/{path}/grants", "getPlaybookGrants", "author")
    async def usable(self, path: PlaybookPath) -> PlaybookGrantsDocument:
        """List what the playbook at a path may use, whether it is registered or not.

        Raises:
            UsageError: it is not a path.
        """

"""Who may do what: API tokens, and the record of what was done and refused."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from noetl_stream.ports.operations.documents import Document, Page

Role = Literal["viewer", "operator", "author", "admin"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "operator", "author", "admin")
"""Each may do what those before it may. Viewers read; operators start executions and intervene; authors register
playbooks; admins keep credentials, tokens and the audit.
"""


class NewToken(NamedTuple):
    """Attributes:
    name: Stands in events and audit as ``token:<name>``; no two that are not revoked have the same.
    paths: Playbook paths that the token may see and touch, with all below them; empty: all. An admin's has none.
    expires_ms: ms since the epoch; ``None`` for never.
    """

    name: str
    role: Role
    paths: tuple[str, ...] = ()
    expires_ms: int | None = None


class Access(Protocol):
    async def create_token(self, new: NewToken, by: str) -> Document:
        """As :meth:`tokens` shows it, and once and never again the ``secret``: the whole text of the token.

        Raises:
            UsageError: it cannot be: its name, a path, a time gone by, an admin's with paths.
            Conflict: a token of that name is not revoked yet.
        """
        ...

    async def tokens(self) -> list[Document]:
        """``{"id", "name", "role", "paths", "created", "created_by", "expires", "last_used", "revoked",
        "revoked_by"}``, revoked ones too, in the order they were made.
        """
        ...

    async def revoke_token(self, token_id: str, by: str) -> None:
        """It holds no longer, within seconds on every gateway. Doing it again changes nothing.

        Raises:
            NotFound: there is none of that id.
        """
        ...

    async def audit(self, limit: int, cursor: str | None, principal: str | None = None) -> Page:
        """Newest first: every call of a gateway that changed something, or was refused: ``{"number", "at", "principal",
        "role", "method", "operation", "target", "correlation_id", "remote", "idempotency_key", "status", "reason",
        "made"}``. ``status`` is ``None`` while the call goes on, or if the gateway died over it.

        Raises:
            UsageError: the cursor is none of this list.
        """
        ...

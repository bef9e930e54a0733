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
    paths: Prefixes of playbook paths that the token may see and touch; empty: all.
    expires_ms: ms since the epoch; ``None`` for never.
    """

    name: str
    role: Role
    paths: tuple[str, ...] = ()
    expires_ms: int | None = None


class Access(Protocol):
    async def create_token(self, new: NewToken, by: str) -> Document:
        """What may be shown of it, and once and never again the ``secret``."""
        ...

    async def tokens(self) -> list[Document]:
        """``{"id", "name", "role", "paths", "created", "created_by", "expires", "last_used", "revoked"}``."""
        ...

    async def revoke_token(self, token_id: str, by: str) -> None: ...

    async def audit(self, limit: int, cursor: str | None, principal: str | None = None) -> Page:
        """Newest first: every call that changed something, or was refused."""
        ...

"""API tokens, grants of playbooks and stored credentials, and the audit of calls (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from noetl_stream.model.envelope import Time
from noetl_stream.model.rights import Role
from noetl_stream.model.secrets.credential import CredentialValue
from noetl_stream.ports.operations.verbs import Cursor, Document, DocumentPage, Limit, Next, PlaybookPath, list_of, verb
from noetl_stream.ports.stores.identities import AuditTable

MOST_SEARCHED: Final = 10_000
"""The entries of the audit that are examined for one page."""


TOKEN_LIFETIME_MS: Final = 90 * 24 * 3600 * 1000
"""The default lifetime of a token."""


class NewToken(msgspec.Struct, frozen=True, gc=False):
    """Attributes:
    name: Shown in events and audit as ``token:<name>``; unique among tokens that are not revoked.
    paths: Playbook paths that the token may see and touch, with all below them; empty: all. An admin's has none.
    expires_ms: ms since the epoch, or ``never``; ``None``: after :data:`TOKEN_LIFETIME_MS`.
    """

    name: str
    role: Role
    paths: tuple[str, ...] = ()
    expires_ms: int | Literal["never"] | None = None


class ApiTokenDocument(Document, frozen=True):
    """What may be shown of a token; ``last_used`` is exact to the minute."""

    id: str
    name: str
    role: Role
    paths: list[str]
    created: Time
    created_by: str
    expires: Time | None
    last_used: Time | None
    revoked: Time | None
    revoked_by: str | None


class NewApiTokenDocument(ApiTokenDocument, frozen=True):
    """``secret`` is the token itself. It is shown this once; the answer to a repeated call does not have it."""

    secret: str | None = None


class SignInCodeDocument(Document, frozen=True):
    """``code`` opens one browser session until it ``expires``. It is shown this once."""

    expires: Time
    code: str | None = None


class AuditEntryDocument(Document, frozen=True):
    """A call that changed something, or was refused. ``status`` is null while it is under way, or if the gateway died
    meanwhile. ``reason`` is the caller's, or why it was refused, or the kind of its problem. ``left_out`` is how many
    more refusals of this caller the entry stands for. ``method``, ``role`` and ``remote`` are empty where it was done
    without a gateway.
    """

    number: int
    at: Time
    principal: str
    role: str
    method: str
    operation: str
    target: str
    correlation_id: str
    remote: str
    idempotency_key: str
    status: int | None
    reason: str
    made: str
    left_out: int


class AuditPage(DocumentPage[AuditEntryDocument], frozen=True):
    """Newest first."""


AuditFault = Literal["changed", "missing", "inserted"]


class AuditFaultDocument(Document, frozen=True):
    """What is wrong at an entry of the audit, or with its answer. What is ``missing`` stood before or after it."""

    number: int
    part: AuditTable
    fault: AuditFault
    says: str


class AuditCheckDocument(Document, frozen=True):
    """How many calls and answers of the audit were ``checked``, and what is wrong. ``unchained`` are from a release
    without chains: nothing shows whether they were changed.
    """

    checked: int
    unchained: int
    faults: list[AuditFaultDocument]
    next: Next


class Access(Protocol):
    @verb("POST", "/tokens", scope="everyone")
    async def create_token(self, new: NewToken, by: str, seed: bytes = b"") -> NewApiTokenDocument:
        """As :meth:`tokens` shows it, with the ``secret``, the whole text of the token, this once.

        Args:
            seed: 32 random bytes: with the same ones it is the same token, made once. Drawn if empty.

        Raises:
            UsageError: an invalid name or path, a time in the past, an admin with paths.
            Conflict: a token of that name is not revoked yet.
            Forbidden: ``by`` the bootstrap token, for another role than ``admin``.
        """

    @verb("GET", "/tokens", "listTokens", "admin", scope="everyone", document=list_of("ApiTokens", ApiTokenDocument))
    async def tokens(self) -> list[ApiTokenDocument]:
        """List tokens in the order they were created, without their secrets.

        Revoked ones too.
        """

    @verb(
        "DELETE",
        "/tokens/{token_id}",
        "revokeToken",
        "admin",
        scope="everyone",
        listed_first=("reason", "correlation_id"),
    )
    async def revoke_token(
        self, token_id: Annotated[str, Meta(min_length=1, max_length=64)], by: str, reason: str = ""
    ) -> None:
        """Revoke a token, within two seconds on every gateway.

        Revoking it again changes nothing. ``reason`` goes into the audit.

        Raises:
            NotFound: no token has that id.
        """

    @verb("GET", "/audit", "listAudit", "admin", scope="everyone")
    async def audit(
        self,
        limit: Limit,
        cursor: Cursor | None,
        principal: Annotated[str | None, Meta(max_length=256, description="Only what this principal did.")] = None,
        *,
        operation: Annotated[str | None, Meta(max_length=64, description="Only calls of this operation.")] = None,
        target: Annotated[str | None, Meta(max_length=256, description="Only what was done to this.")] = None,
        refused: Annotated[bool | None, Meta(description="Only what was refused, or only what was not.")] = None,
    ) -> AuditPage:
        """List calls that changed something, and calls that were refused, newest first.

        Those that match all given arguments. A page ends after :data:`MOST_SEARCHED` entries, so it may be short or
        empty and still have a ``next``.

        Raises:
            UsageError: the cursor is not of this list.
        """

    @verb("GET", "/audit/check", "checkAudit", "admin", scope="everyone")
    async def check_audit(self, cursor: Cursor | None = None) -> AuditCheckDocument:
        """Check whether entries of the audit were changed, removed or inserted.

        A page checks about :data:`MOST_SEARCHED` of them, chain by chain, so go on as long as there is a ``next``.

        Raises:
            UsageError: the cursor is not of this list.
        """


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


class CredentialDocument(Document, frozen=True):
    """What may be shown of a credential; ``version`` counts its values."""

    name: str
    kind: str
    description: str
    tags: list[str]
    version: int
    key_id: str
    created: Time
    updated: Time


class RotatedDocument(Document, frozen=True):
    """Those that are under the current key now, and why others are not."""

    rotated: list[str]
    problems: list[str]


CREDENTIAL: Final = (
    "CredentialRequest",
    "A value: text, or an object. What is not given of the rest stays as it was.",
)
CredentialName = Annotated[str, Meta(min_length=1, max_length=128)]


class CredentialStore(Protocol):
    """No method ever returns a value. ``reason`` goes into the audit."""

    @verb(
        "GET",
        "/credentials",
        "listCredentials",
        "author",
        scope="special",
        document=list_of("Credentials", CredentialDocument),
    )
    async def list_all(self) -> list[CredentialDocument]:
        """List credentials by name, without their values.

        A token with paths sees those that a playbook of its paths may use.
        """

    @verb("POST", "/credentials/rotate", "rotateCredentials", "admin", scope="everyone")
    async def rotate(self, by: str, reason: str = "") -> RotatedDocument:
        """Encrypt what is under an older key with the current one.

        Repeating it is harmless.
        """

    @verb("GET", "/credentials/{name}", "getCredential", "author", scope="special")
    async def get(self, name: CredentialName) -> CredentialDocument:
        """Get a credential without its value.

        Raises:
            NotFound: no credential has that name.
        """

    @verb("PUT", "/credentials/{name}", "putCredential", "admin", scope="everyone", request=CREDENTIAL)
    async def put(
        self,
        name: CredentialName,
        value: CredentialValue,
        by: str,
        kind: str = "",
        description: str = "",
        tags: Annotated[Sequence[str], Meta(max_length=100)] = (),
        *,
        reason: str = "",
    ) -> CredentialDocument:
        """Store a credential, or its next version.

        Raises:
            UsageError: the name or the value cannot be stored.
            NotReady: no encryption key is configured.
        """

    @verb("DELETE", "/credentials/{name}", "deleteCredential", "admin", scope="everyone")
    async def delete(self, name: CredentialName, by: str, reason: str = "") -> None:
        """Delete a credential."""

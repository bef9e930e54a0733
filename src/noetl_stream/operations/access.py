"""API tokens, credentials and the audit, directly on Postgres: the first admin token is created this way.

Credentials are encrypted here: no value passes NATS or reaches Postgres unencrypted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import asdict

from noetl_stream.errors import Conflict, Forbidden, NoetlError, NotFound, NotReady, PayloadRefused, UsageError
from noetl_stream.model.json import codec
from noetl_stream.model.rights import ROLES
from noetl_stream.model.secrets.credential import CREDENTIAL_NAME, CredentialValue, check_secrets
from noetl_stream.operations.audit_check import check_audit
from noetl_stream.operations.paging import cursor_of, page_of, page_size, read_cursor
from noetl_stream.playbook.suggestions import did_you_mean
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations import access as documents
from noetl_stream.ports.operations.problems import problem_kind
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores import identities
from noetl_stream.ports.stores.catalog import is_path
from noetl_stream.ports.stores.credentials import CredentialInfo, Credentials, NewCredential
from noetl_stream.sealing.keys import KEY_HINT, CannotDecrypt, KeyRing, SealedEnvelope, decrypt, encrypt

TOKEN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
SEED_BYTES: Final = 32
MADE_BY: Final = "noetl-stream"
"""The creator of a bootstrap token."""
MAX_PATHS: Final = 100
LATEST_MS: Final = 253_370_764_800_000
READ_AT_ONCE: Final = 1_000
"""The entries of the audit that are read at once in a search."""

REFUSED_FROM: Final = 400
"""The lowest status that is a refusal."""

WITHOUT_ANSWER: Final = ("delete", "discard", "revoke")
"""Prefixes of operations without an answer."""


log = logging.getLogger(__name__)


class DirectAccess:
    """:class:`~noetl_stream.ports.operations.access.Access`, where each method is described."""

    def __init__(self, tokens: identities.Tokens, audit: identities.Audit, clock: Clock) -> None:
        self._tokens = tokens
        self._audit = audit
        self._clock = clock

    async def create_token(self, new: documents.NewToken, by: str, seed: bytes = b"") -> documents.NewApiTokenDocument:
        now_ms = self._clock.now_ms()
        expires_ms = now_ms + documents.TOKEN_LIFETIME_MS if new.expires_ms is None else new.expires_ms
        _check(new, now_ms)
        if by == identities.BOOTSTRAP_PRINCIPAL and new.role != "admin":
            raise Forbidden("the bootstrap token only creates the token of an admin", hint="give it the role admin")
        token_id, secret = _id_and_secret(seed or self._clock.random_bytes(SEED_BYTES))
        paths = tuple(path.strip("/") for path in new.paths)
        token = identities.StoredToken(
            id=token_id,
            name=new.name,
            role=new.role,
            paths=paths,
            secret_hash=identities.hash_of(secret),
            created_ms=now_ms,
            created_by=by,
            expires_ms=None if expires_ms == "never" else expires_ms,
        )
        if not await self._tokens.add(token):
            made = await self._tokens.get(token_id)
            if made is None:
                raise Conflict(f"token {new.name!r} already exists", hint="revoke it, or choose another name")
            token = made  # made by this call's earlier attempt, or at this moment by another gateway
        if token.role == "admin":
            await _revoke_bootstrap(self._tokens, now_ms, by)
        return document_from(documents.NewApiTokenDocument, token, secret=identities.token_text(token_id, secret))

    async def tokens(self) -> list[documents.ApiTokenDocument]:
        return [document_from(documents.ApiTokenDocument, token) for token in await self._tokens.list_all()]

    async def revoke_token(self, token_id: str, by: str, reason: str = "") -> None:
        if not await self._tokens.revoke(token_id, self._clock.now_ms(), by):
            raise NotFound(f"token {token_id!r} not found", hint="list the ids: `noetl-stream token list`")

    async def audit(
        self,
        limit: int,
        cursor: str | None,
        principal: str | None = None,
        *,
        operation: str | None = None,
        target: str | None = None,
        refused: bool | None = None,
    ) -> documents.AuditPage:
        def is_wanted(entry: identities.AuditEntry) -> bool:
            attempt, status = entry.attempt, entry.answer.status if entry.answer else 0
            return (
                operation in (None, attempt.operation)
                and target in (None, attempt.target)
                and refused in (None, status >= REFUSED_FROM)
            )

        size = page_size(limit)
        is_narrowed = (operation, target, refused) != (None, None, None)
        read_at_once = READ_AT_ONCE if is_narrowed else size + 1
        before, found = read_cursor(cursor, int), list[identities.AuditEntry]()
        for _ in range(documents.MOST_SEARCHED // READ_AT_ONCE):
            entries = await self._audit.page(read_at_once, before, principal)
            found += filter(is_wanted, entries)
            if len(found) > size or len(entries) < read_at_once:
                shown, following = page_of(found[: size + 1], size, lambda entry: entry.number)
                return documents.AuditPage([_entry(entry) for entry in shown], following)
            before = entries[-1].number
        return documents.AuditPage([_entry(entry) for entry in found], cursor_of(before))

    async def check_audit(self, cursor: str | None = None) -> documents.AuditCheckDocument:
        return await check_audit(self._audit, cursor)


async def ensure_bootstrap_token(
    kept: identities.KeptText, tokens: identities.Tokens, audit: identities.Audit, clock: Clock
) -> identities.StoredToken | None:
    """Registers a bootstrap token, if no token of an admin is valid. Its text is read from ``kept``, or written there.

    A text that exists is used, unless that token was revoked: an earlier attempt may have ended after writing it.

    Returns:
        The token; ``None``: it was registered before, or an admin has a token.

    Raises:
        Unreachable, Forbidden: the text cannot be read or written, or the database is away.
    """
    now_ms = clock.now_ms()
    valid = [token for token in await tokens.list_all() if token.role == "admin" and token.holds(now_ms)]
    if any(token.name != identities.BOOTSTRAP_NAME for token in valid):
        return None
    spelt = identities.TOKEN_TEXT.fullmatch((await kept.read() or "").strip())
    token_id, secret = spelt.groups() if spelt else ("", "")
    known = await tokens.get(token_id) if token_id else None
    if known is not None and known in valid and known.secret_hash == identities.hash_of(secret):
        return None
    if known is not None or not token_id:
        token_id, secret = _id_and_secret(clock.random_bytes(SEED_BYTES))
        await kept.write(identities.token_text(token_id, secret))
    await _revoke_bootstrap(tokens, now_ms, MADE_BY)  # one whose text is lost
    made = identities.StoredToken(
        id=token_id,
        name=identities.BOOTSTRAP_NAME,
        role="admin",
        paths=(),
        secret_hash=identities.hash_of(secret),
        created_ms=now_ms,
        created_by=MADE_BY,
    )
    async with AuditRecord(audit, clock)("createToken", identities.BOOTSTRAP_NAME, MADE_BY):
        await tokens.add(made)
    return made


async def _revoke_bootstrap(tokens: identities.Tokens, now_ms: int, by: str) -> None:
    for token in await tokens.list_all():
        if token.name == identities.BOOTSTRAP_NAME and token.revoked_ms is None:
            await tokens.revoke(token.id, now_ms, by)


def _id_and_secret(seed: bytes) -> tuple[str, str]:
    """The id and the secret of this seed's token. The id is shown, and reveals nothing of the secret."""
    return sha256(b"id" + seed).hexdigest()[:16], sha256(b"secret" + seed).hexdigest()


def _check(new: documents.NewToken, now_ms: int) -> None:
    if TOKEN_NAME.fullmatch(new.name) is None:
        hint = "use 1 to 64 letters, digits, `_`, `.`, `@` and `-`, beginning with a letter, a digit or `_`"
        raise UsageError(f"{new.name!r} is not a valid token name", hint=hint)
    if new.name == identities.LOCAL_NAME:
        raise UsageError(f"the name {new.name!r} is for the gateway of the embedded stack", hint="choose another name")
    if new.role not in ROLES:
        raise UsageError(f"{new.role!r} is not a role", hint=f"use one of {', '.join(ROLES)}")
    if new.role == "admin" and new.paths:
        raise UsageError("an admin token cannot be limited to paths", hint="it could create a token without paths")
    if len(new.paths) > MAX_PATHS or not all(is_path(path.strip("/")) for path in new.paths):
        raise UsageError("the paths of a token must be paths of playbooks or folders", hint="e.g. `team/reports`")
    if isinstance(new.expires_ms, int) and not now_ms < new.expires_ms <= LATEST_MS:
        raise UsageError("the token would expire in the past, or after the year 9999", hint="choose a future time")


def _entry(entry: identities.AuditEntry) -> documents.AuditEntryDocument:
    answer = {"status": None, "reason": "", "made": "", "left_out": 0} if entry.answer is None else asdict(entry.answer)
    return document_from(documents.AuditEntryDocument, entry.attempt, number=entry.number, **answer)


class AuditRecord:
    """A :class:`OnRecord` that writes an entry before the operation and its outcome afterwards, like a gateway."""

    def __init__(self, audit: identities.Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock

    @asynccontextmanager
    async def __call__(self, operation: str, target: str, by: str, reason: str = "") -> AsyncIterator[None]:
        """
        Raises:
            Unreachable: the entry cannot be written; the operation did not run.
        """
        call = identities.AuditedCall(
            at_ms=self._clock.now_ms(),
            principal=identities.audit_text(by),
            role="",
            method="",
            operation=operation,
            target=identities.audit_text(target),
        )
        number = await self._audit.begin(call)
        try:
            yield
        except Exception as error:
            kind = problem_kind(error)
            await self._answer(number, identities.AuditedAnswer(kind.status, kind.name))
            raise
        status = 204 if operation.startswith(WITHOUT_ANSWER) else 200
        await self._answer(number, identities.AuditedAnswer(status, identities.audit_text(reason)))

    async def _answer(self, number: int, answer: identities.AuditedAnswer) -> None:
        try:
            await self._audit.answer(number, answer)
        except NoetlError as error:
            log.error("cannot record the outcome of audit entry %s (%s): %s", number, answer.status, error)


MAX_VALUE_BYTES: Final = 64 * 1024
FORMER_AT_ONCE: Final = 500
TRIES: Final = 10
"""The number of attempts to write a name against concurrent writers."""

_NEW: Final = CredentialInfo(
    name="", kind="generic", description="", tags=(), version=0, key_id="", created_ms=0, updated_ms=0
)


class DirectCredentials:
    """:class:`~noetl_stream.ports.operations.access.CredentialStore`, where each method is described.

    Args:
        keys: The keys that encrypt; without them nothing can be stored.
    """

    def __init__(self, credentials: Credentials, keys: KeyRing | None) -> None:
        self._credentials = credentials
        self._keys = keys

    async def put(
        self,
        name: str,
        value: CredentialValue,
        by: str,
        kind: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        *,
        reason: str = "",
    ) -> documents.CredentialDocument:
        _check_credential(name, value)
        keys = self._require_keys()
        plain = codec.encode(value)
        for _ in range(TRIES):
            stored = await self._credentials.get(name)
            info = stored.info if stored is not None else _NEW
            version = info.version + 1
            new = NewCredential(
                name,
                kind or info.kind,
                description or info.description,
                tuple(tags) or info.tags,
                version,
                *encrypt(keys, name, version, plain),
            )
            if await self._credentials.put(new):
                return await self.get(name)
        raise UsageError(f"credential {name!r} is being written by others", hint="try again")

    async def list_all(self) -> list[documents.CredentialDocument]:
        return [document_from(documents.CredentialDocument, info) for info in await self._credentials.list_all()]

    async def get(self, name: str) -> documents.CredentialDocument:
        stored = await self._credentials.get(name)
        if stored is None:
            raise await self._not_found(name)
        return document_from(documents.CredentialDocument, stored.info)

    async def delete(self, name: str, by: str, reason: str = "") -> None:
        if not await self._credentials.delete(name):
            raise await self._not_found(name)

    async def rotate(self, by: str, reason: str = "") -> documents.RotatedDocument:
        keys = self._require_keys()
        rotated = documents.RotatedDocument([], [])
        for stored in await self._credentials.read_all():
            info = stored.info
            if info.key_id == keys.current.id:
                continue
            try:
                plain = decrypt(keys, info.name, info.version, SealedEnvelope(info.key_id, stored.sealed))
            except CannotDecrypt as problem:
                rotated.problems.append(str(problem))
                continue
            # A value written meanwhile is already under the current key, or is found the next time.
            envelope = encrypt(keys, info.name, info.version, plain)
            if await self._credentials.reencrypt(info.name, info.version, *envelope):
                rotated.rotated.append(info.name)
        rotated.problems.extend(await self._rotate_former(keys))
        return rotated

    async def _rotate_former(self, keys: KeyRing) -> Collection[str]:
        """Encrypts former values with the current key; returns the problems."""
        problems: dict[str, None] = {}
        page = await self._credentials.read_former(0, FORMER_AT_ONCE)
        while page:
            for former in page:
                name, version, key_id, sealed = former.value
                if key_id == keys.current.id:
                    continue
                try:
                    plain = decrypt(keys, name, version, SealedEnvelope(key_id, sealed))
                except CannotDecrypt as problem:
                    problems[f"a former value: {problem}"] = None
                    continue
                await self._credentials.reencrypt_former(former.number, *encrypt(keys, name, version, plain))
            page = await self._credentials.read_former(page[-1].number, FORMER_AT_ONCE)
        return problems

    def _require_keys(self) -> KeyRing:
        if self._keys is None:
            raise NotReady("no key to encrypt credentials with", hint=f"set NOETL_CREDENTIAL_KEY; {KEY_HINT}")
        return self._keys

    async def _not_found(self, name: str) -> NotFound:
        names = [info.name for info in await self._credentials.list_all()]
        hint = did_you_mean(name, names) or "list them: `noetl-stream credential list`"
        return NotFound(f"credential {name!r} not found", hint=hint)


def _check_credential(name: str, value: Any) -> None:
    if CREDENTIAL_NAME.fullmatch(name) is None:
        hint = "use 1 to 128 letters, digits, `_`, `.` and `-`, beginning with a letter, a digit or `_`"
        raise UsageError(f"{name!r} is not a valid credential name", hint=hint)
    if len(codec.encode(value)) > MAX_VALUE_BYTES:
        raise UsageError(f"the value is larger than {MAX_VALUE_BYTES} bytes", hint="store a secret, not data")
    try:
        check_secrets(value, "the value")
    except PayloadRefused as error:
        raise UsageError(error.message) from None

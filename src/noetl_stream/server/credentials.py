"""Stored credentials (LANGUAGE §11): checked before an execution starts, and sent to workers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.errors import NoetlError, PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.credential import credential_value
from noetl_stream.model.messages import SecretAnswer, SecretQuestion, subject_of
from noetl_stream.playbook.diagnostics import Diagnostic, did_you_mean, nearest
from noetl_stream.playbook.kinds.keychain import credential_name
from noetl_stream.playbook.plan import KeychainPlan, Plan
from noetl_stream.ports.credentials import CREDENTIAL_NAME, Credentials, StoredCredential
from noetl_stream.ports.store import Store
from noetl_stream.sealing.handover import seal
from noetl_stream.sealing.keys import KEY_HINT, KeyRing, SealedEnvelope, decrypt

log = logging.getLogger(__name__)

OFFERED_VERSION: Final = 1
"""The version of what the installation offers; the version 0 means that nothing is stored."""


class SecretsResponder:
    """Answers requests for stored credentials, sealed to the worker that asks.

    Args:
        keys: The keys they are encrypted with; ``None`` if this server has no key.
        offered: What the installation itself offers, as text by lower-case name (``local_postgres``), where no such
            credential is stored.
    """

    def __init__(
        self, credentials: Credentials, store: Store, keys: KeyRing | None, offered: Mapping[str, str] | None = None
    ) -> None:
        self._credentials = credentials
        self._store = store
        self._keys = keys
        self._offered = offered or {}

    async def reply(self, names: list[str], body: bytes) -> SecretAnswer:
        """The answer to an encoded question. Errors: as of :meth:`answer`."""
        try:
            return await self.answer(codec.decode_secret_question(body))
        except PayloadRefused as error:
            return SecretAnswer(refused=error.message)

    async def answer(self, question: SecretQuestion) -> SecretAnswer:
        """The sealed value, or why it is refused.

        Raises:
            Unreachable: the database does not answer.
        """
        row = await self._store.execution(question.execution_id)
        if row is None or row.finished_ms is not None:
            what = "has ended" if row is not None else "is unknown"
            return self._refused(question, f"execution {question.execution_id} {what}: it gets no credentials")
        if CREDENTIAL_NAME.fullmatch(question.name) is None:
            return SecretAnswer()
        stored = await self._credentials.get(question.name)
        offered = self._offered.get(question.name.lower())
        try:
            if stored is not None:
                return _sealed(question, stored.info.version, self._decrypted(stored))
            if offered is not None:
                value = credential_value(offered, f"the server's credential {question.name!r}")
                return _sealed(question, OFFERED_VERSION, codec.encode(value))
        except NoetlError as error:
            return self._refused(question, str(error))
        return SecretAnswer(near=nearest(question.name, await self.names()) or "")

    async def names(self) -> frozenset[str]:
        """Every credential a playbook can name: stored, or offered by the installation."""
        return frozenset(self._offered).union(info.name for info in await self._credentials.list_all())

    def _decrypted(self, stored: StoredCredential) -> bytes:
        """The value as JSON."""
        if self._keys is None:
            raise NoetlError(f"no key is configured: set NOETL_CREDENTIAL_KEY for the servers; {KEY_HINT}")
        info = stored.info
        return decrypt(self._keys, info.name, info.version, SealedEnvelope(info.key_id, stored.sealed))

    def _refused(self, question: SecretQuestion, reason: str) -> SecretAnswer:
        log.warning("credential %s refused: %s", question.name, reason)
        return SecretAnswer(refused=reason)


def _sealed(question: SecretQuestion, version: int, value: bytes) -> SecretAnswer:
    sealed = seal(value, question.public_key, subject_of(question, version))
    return SecretAnswer(version=version, public_key=sealed.public_key, body=sealed.body)


async def with_credentials(plan: Plan | InvalidPlan, secrets: SecretsResponder | None) -> Plan | InvalidPlan:
    """``plan``, or why it cannot run: its keychain names a credential that does not exist.

    The database is queried only if the keychain names any.

    Raises:
        Unreachable: the database does not answer.
    """
    if isinstance(plan, InvalidPlan) or secrets is None:
        return plan
    if not any(_needed_credential(entry) for entry in plan.keychain.values()):
        return plan
    missing = missing_credentials(plan.keychain, await secrets.names(), plan.path)
    if not missing:
        return plan
    reason = f"line {missing[0].line}: {missing[0].message} ({missing[0].hint})"
    return InvalidPlan(reason, [diagnostic.to_json() for diagnostic in missing])


def missing_credentials(
    keychain: Mapping[str, KeychainPlan], known: Collection[str], file: str = ""
) -> list[Diagnostic]:
    """An error for each entry whose credential is not ``known``. Entries of other kinds are resolved on the worker."""
    found = []
    for entry in keychain.values():
        name = _needed_credential(entry)
        if name is None or name in known:
            continue
        near = did_you_mean(name, known)
        hint = f"{near + ' ' if near else ''}store it: `noetl-stream credential set {name}`"
        message = f"the keychain's `{entry.name}` needs the credential `{name}`, which is not stored"
        found.append(
            Diagnostic(
                severity="error",
                code="missing_credential",
                message=message,
                hint=hint,
                file=file,
                line=entry.line,
                column=1,
                pointer="/keychain",
            )
        )
    return found


def _needed_credential(entry: KeychainPlan) -> str | None:
    return credential_name(entry.name, entry.kind, entry.settings)

"""Stored credentials (LANGUAGE §11): checked before an execution starts, and sent to workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.errors import NoetlError, PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.model.messages import HideAnswer, HideQuestion, SecretAnswer, SecretQuestion, subject_of
from noetl_stream.model.secrets.credential import CREDENTIAL_NAME, CredentialValue, credential_value
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.kinds.keychain import credential_name
from noetl_stream.playbook.plan import KeychainPlan, Plan
from noetl_stream.playbook.suggestions import did_you_mean, nearest
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.credentials import Credentials, StoredCredential
from noetl_stream.ports.stores.identities import Audit, AuditedAnswer, AuditedCall, audit_text
from noetl_stream.protocol.nats_permissions import worker_identity
from noetl_stream.sealing.handover import seal
from noetl_stream.sealing.keys import KEY_HINT, KeyRing, SealedEnvelope, decrypt
from noetl_stream.server.answers.hidden_values import HiddenValues
from noetl_stream.settings.grants import Grants
from noetl_stream.storage.refusal_audit import Refusal, RefusalAudit

log = logging.getLogger(__name__)

OFFERED_VERSION: Final = 1
"""The version of credentials that the installation offers; version 0 means that nothing is stored."""


class SecretsResponder:
    """Sends stored credentials, sealed to the worker that asks, and hides secrets that workers read themselves; each is
    recorded in the audit.

    Attributes:
        refusals: A sample of the refused questions, for the audit.

    Args:
        keys: The keys that encrypt credentials; ``None`` if this server has no key.
        offered: Credentials that the installation itself offers, as text by lower-case name (``local_postgres``), where
            no such credential is stored.
    """

    def __init__(
        self,
        credentials: Credentials,
        audit: Audit,
        clock: Clock,
        keys: KeyRing | None,
        offered: Mapping[str, str] | None = None,
    ) -> None:
        self._credentials = credentials
        self._audit = audit
        self._clock = clock
        self._keys = keys
        self._offered = offered or {}
        self._hidden = HiddenValues(credentials, clock, keys)
        self.refusals = RefusalAudit(audit, clock)

    async def answer(self, question: SecretQuestion, pool: str) -> SecretAnswer:
        """Returns the sealed credential, or why it is refused.

        Args:
            question: A question of a live command that was given to this ``pool``.

        Raises:
            Unreachable: the database does not answer; nothing is handed out without its entry in the audit.
        """
        answer = await self._stored_credential(question) or await self._offered_credential(question)
        if answer is None:
            await self.refuse(question, pool, "not stored", status=404)
            return SecretAnswer(near=await self._nearest_name(question.name))
        if answer.refused:
            await self.refuse(question, pool, answer.refused)
            return answer
        await self._audit.add(_audited_call(question, pool, self._clock.now_ms()), _audited_answer(answer))
        return answer

    async def hide(self, question: HideQuestion, pool: str) -> HideAnswer | None:
        """Hides a secret that a worker has read; the audit has it first. See :meth:`HiddenValues.answer`."""
        answer = await self._hidden.answer(question, pool)
        if answer == HideAnswer():
            await self._audit.add(_audited_call(question, pool, self._clock.now_ms()), AuditedAnswer(200))
        return answer

    async def refuse(self, question: SecretQuestion | HideQuestion, pool: str, reason: str, status: int = 403) -> None:
        """Records in the audit that a worker of this ``pool`` asked for a secret and got nothing."""
        attempt = _audited_call(question, pool, self._clock.now_ms())
        await self.refusals.add(Refusal(attempt.principal, attempt, AuditedAnswer(status, audit_text(reason))))

    async def names(self) -> frozenset[str]:
        """Returns every credential name that a playbook can use: stored, or offered by the installation."""
        return frozenset(self._offered).union(info.name for info in await self._credentials.list_all())

    async def value(self, name: str) -> CredentialValue | None:
        """Returns a stored credential, for this server alone; ``None`` if the name is not stored.

        Raises:
            NoetlError: it cannot be decrypted.
            Unreachable: the database does not answer.
        """
        stored = await self._credentials.get(name)
        value: CredentialValue | None = None if stored is None else codec.decode_json(self._decrypt(stored))
        return value

    async def _stored_credential(self, question: SecretQuestion) -> SecretAnswer | None:
        """Returns the stored credential, sealed, and records its use; ``None`` if the name is not stored."""
        if CREDENTIAL_NAME.fullmatch(question.name) is None:
            return None
        while (stored := await self._credentials.get(question.name)) is not None:
            answer = _sealed_answer(question, stored.info.version, partial(self._decrypt, stored))
            if answer.refused or await self._credentials.record_use(question.command.execution_id, stored):
                return answer
        return None

    async def _offered_credential(self, question: SecretQuestion) -> SecretAnswer | None:
        """Returns the credential that the installation offers by this name, if any, and hides it."""
        offered = self._offered.get(question.name.lower())
        if offered is None:
            return None
        try:
            plain = codec.encode(credential_value(offered, f"the server's credential {question.name!r}"))
        except PayloadRefused as error:
            return _refused_answer(question, error)
        await self._hidden.hide_offered(question.command.execution_id, question.name.lower(), plain)
        return _sealed_answer(question, OFFERED_VERSION, lambda: plain, is_operators=True)

    async def _nearest_name(self, name: str) -> str:
        return nearest(name, await self.names()) or "" if CREDENTIAL_NAME.fullmatch(name) else ""

    def _decrypt(self, stored: StoredCredential) -> bytes:
        """Decrypts a stored credential to JSON."""
        if self._keys is None:
            raise NoetlError(f"no key is configured: set NOETL_CREDENTIAL_KEY for the servers; {KEY_HINT}")
        info = stored.info
        return decrypt(self._keys, info.name, info.version, SealedEnvelope(info.key_id, stored.sealed))


def _audited_call(question: SecretQuestion | HideQuestion, pool: str, at_ms: int) -> AuditedCall:
    """Describes for the audit that a worker gets a secret from the store or reads one itself; never its value."""
    command = question.command
    return AuditedCall(
        at_ms=at_ms,
        principal=worker_identity(pool),
        role="worker",
        method="",
        operation="readCredential" if isinstance(question, SecretQuestion) else "readSecret",
        target=audit_text(question.name),
        correlation_id=audit_text(f"{command.execution_id}/{command.command_id}"),
        remote=audit_text(question.worker),
        idempotency_key="",
    )


def _audited_answer(answer: SecretAnswer) -> AuditedAnswer:
    return AuditedAnswer(200, made=f"version {answer.version}")


def _sealed_answer(
    question: SecretQuestion, version: int, value: Callable[[], bytes], *, is_operators: bool = False
) -> SecretAnswer:
    """Seals the credential to the worker that asks, or says why it is refused."""
    try:
        sealed = seal(value(), question.public_key, subject_of(question, version))
    except NoetlError as error:
        return _refused_answer(question, error)
    return SecretAnswer(version=version, public_key=sealed.public_key, body=sealed.body, is_operators=is_operators)


def _refused_answer(question: SecretQuestion, error: NoetlError) -> SecretAnswer:
    log.warning("credential %s refused: %s", question.name, error)
    return SecretAnswer(refused=str(error))


async def with_credentials(
    plan: Plan | InvalidPlan, secrets: SecretsResponder | None, grants: Grants | None = None
) -> Plan | InvalidPlan:
    """Returns ``plan``, or why it cannot run: its keychain names a credential that does not exist.

    The database is queried only if the keychain names any. Names that the playbook was not granted are not suggested.

    Raises:
        Unreachable: the database does not answer.
    """
    if isinstance(plan, InvalidPlan) or secrets is None:
        return plan
    if not any(_needed_credential(entry) for entry in plan.keychain.values()):
        return plan
    names = await secrets.names()
    known = {name for name in names if grants is None or grants.allows(plan.path, "credentials", name)}
    missing = missing_credentials(plan.keychain, known, plan.path)
    if not missing:
        return plan
    reason = f"line {missing[0].line}: {missing[0].message} ({missing[0].hint})"
    return InvalidPlan(reason, [diagnostic.to_json() for diagnostic in missing])


def missing_credentials(
    keychain: Mapping[str, KeychainPlan], known: Collection[str], file: str = ""
) -> list[Diagnostic]:
    """Returns an error for each keychain entry whose credential is not ``known``; workers resolve other kinds."""
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

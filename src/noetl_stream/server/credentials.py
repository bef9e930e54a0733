"""Stored credentials (LANGUAGE §11): checked before an execution starts, and sent to workers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.errors import NoetlError
from noetl_stream.model.messages import SecretAnswer, SecretQuestion, subject_of
from noetl_stream.playbook.diagnostics import Diagnostic, did_you_mean, nearest
from noetl_stream.playbook.kinds.keychain import credential_name
from noetl_stream.playbook.plan import KeychainPlan, Plan
from noetl_stream.ports.access import Audit, AuditedAnswer, AuditedCall, audit_text
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.credentials import CREDENTIAL_NAME, Credentials, StoredCredential
from noetl_stream.ports.permissions import worker_identity
from noetl_stream.sealing.handover import seal
from noetl_stream.sealing.keys import KEY_HINT, KeyRing, SealedEnvelope, decrypt

log = logging.getLogger(__name__)


class SecretsResponder:
    """Hands out stored credentials, sealed to the worker that asks, each with an entry in the audit.

    Args:
        keys: The keys they are encrypted with; ``None`` if this server has no key.
        offered: Names the installation itself offers its workers (``local_postgres``).
    """

    def __init__(
        self,
        credentials: Credentials,
        audit: Audit,
        clock: Clock,
        keys: KeyRing | None,
        offered: Collection[str] = (),
    ) -> None:
        self._credentials = credentials
        self._audit = audit
        self._clock = clock
        self._keys = keys
        self._offered = frozenset(offered)

    async def answer(self, question: SecretQuestion, pool: str) -> SecretAnswer:
        """The sealed value, or why it is refused.

        Args:
            question: Of a command that is live and was given to this ``pool``.

        Raises:
            Unreachable: the database does not answer; nothing is handed out without its entry in the audit.
        """
        if CREDENTIAL_NAME.fullmatch(question.name) is None:
            return SecretAnswer()
        stored = await self._credentials.get(question.name)
        if stored is None:
            names = [info.name for info in await self._credentials.list_all()]
            return SecretAnswer(near=nearest(question.name, names) or "")
        try:
            answer = self._sealed(question, stored)
        except NoetlError as error:
            log.warning("credential %s refused: %s", question.name, error)
            return SecretAnswer(refused=str(error))
        await self._audit.add(_reading(question, pool, self._clock.now_ms()), _read(answer))
        return answer

    async def names(self) -> frozenset[str]:
        """Every credential a playbook can name: stored, or offered by the installation."""
        return self._offered.union(info.name for info in await self._credentials.list_all())

    def _sealed(self, question: SecretQuestion, stored: StoredCredential) -> SecretAnswer:
        if self._keys is None:
            raise NoetlError(f"no key is configured: set NOETL_CREDENTIAL_KEY for the servers; {KEY_HINT}")
        version = stored.info.version
        value = decrypt(self._keys, question.name, version, SealedEnvelope(stored.info.key_id, stored.sealed))
        sealed = seal(value, question.public_key, subject_of(question, version))
        return SecretAnswer(version=version, public_key=sealed.public_key, body=sealed.body)


def _reading(question: SecretQuestion, pool: str, at_ms: int) -> AuditedCall:
    """A credential that leaves the store, as the audit records it: never its value."""
    command = question.command
    return AuditedCall(
        at_ms=at_ms,
        principal=worker_identity(pool),
        role="worker",
        method="",
        operation="readCredential",
        target=question.name,
        correlation_id=f"{command.execution_id}/{command.command_id}",
        remote=audit_text(question.worker),
        idempotency_key="",
    )


def _read(answer: SecretAnswer) -> AuditedAnswer:
    return AuditedAnswer(200, made=f"version {answer.version}")


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

"""Credentials of executions (LANGUAGE §11): stored ones are sent to workers, all are kept so that they can be hidden.

Workers report the secrets that they read themselves: variables, files, tokens, results of plugins, secrets of a whole
playbook. Servers add the credentials that the installation offers. All are kept encrypted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Final, NamedTuple

from noetl_stream.errors import NoetlError, PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model.json import codec
from noetl_stream.model.messages import HideAnswer, HideQuestion, SecretAnswer, SecretQuestion, hidden_as, subject_of
from noetl_stream.model.secrets.credential import CREDENTIAL_NAME, CredentialValue, check_secrets, credential_value
from noetl_stream.playbook.suggestions import nearest
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.credentials import Credentials, SealedValue, StoredCredential, given_name
from noetl_stream.ports.stores.identities import Audit, AuditedAnswer, AuditedCall, audit_text
from noetl_stream.protocol.nats_permissions import worker_identity
from noetl_stream.sealing.handover import HandoverKey, Sealed, seal
from noetl_stream.sealing.keys import KEY_HINT, KeyRing, SealedEnvelope, decrypt, encrypt
from noetl_stream.sealing.signing import Signer
from noetl_stream.storage.refusal_audit import Refusal, RefusalAudit
from noetl_stream.storage.used_secrets import UsedSecrets

MAX_HIDDEN_BYTES: Final = 128 * 1024
"""The most bytes of one hidden value, as JSON."""

MAX_HIDDEN_A_MINUTE: Final = 100
MINUTE_S: Final = 60.0
"""The period in which a command may hide :data:`MAX_HIDDEN_A_MINUTE` values. Further questions wait."""

COMMANDS_COUNTED: Final = 10_000
"""The number of commands whose questions are counted, the last to ask."""

GIVEN_VERSION: Final = 1
SERVER: Final = "server"


class _Asked(NamedTuple):
    since_s: float
    times: int


class HiddenValues:
    """Keeps secrets with the executions that read them.

    Args:
        keys: The keys that encrypt values. Without a key nothing is kept, since gateways then hide nothing.
    """

    def __init__(self, credentials: Credentials, clock: Clock, keys: KeyRing | None) -> None:
        self._credentials = credentials
        self._clock = clock
        self._keys = keys
        self._marks = Signer(keys, "given value") if keys is not None else None
        self._asked: LruCache[str, _Asked] = LruCache(COMMANDS_COUNTED)

    @cached_property
    def _key(self) -> HandoverKey:
        """The key that workers seal values to, made on first use: most servers never need one."""
        return HandoverKey()

    async def answer(self, question: HideQuestion, pool: str) -> HideAnswer | None:
        """Hides a secret that a worker of this ``pool`` has read for a live command; ``None`` if it must ask later.

        Raises:
            PayloadRefused: the value is too large, or has a secret that is too short to be hidden.
            CannotOpen: the value is sealed for another command or name.
            Unreachable: the database does not answer.
        """
        if self._keys is None:
            return HideAnswer()
        if question.server_key != self._key.public_key:
            return HideAnswer(server_key=self._key.public_key)
        if not self._may_ask(question.command.command_id):
            return None
        plain = self._key.open(Sealed(question.public_key, question.body), hidden_as(question))
        if len(plain) > MAX_HIDDEN_BYTES:
            raise PayloadRefused(f"the value is larger than {MAX_HIDDEN_BYTES} bytes of JSON")
        check_secrets(codec.decode_value(plain), "the value")
        await self._keep(question.command.execution_id, worker_identity(pool), audit_text(question.name), plain)
        return HideAnswer()

    async def hide_offered(self, execution_id: str, name: str, plain: bytes) -> None:
        """Hides a credential that the installation offers by this name, as JSON. Raises like :meth:`answer`."""
        await self._keep(execution_id, SERVER, name, plain)

    async def _keep(self, execution_id: str, giver: str, name: str, plain: bytes) -> None:
        if self._keys is None or self._marks is None:
            return
        # Keyed, so that values cannot be guessed from the names in Postgres.
        kept_as = given_name(giver, name, self._marks.sign(execution_id, body=plain))
        envelope = encrypt(self._keys, kept_as, GIVEN_VERSION, plain)
        await self._credentials.record_given(execution_id, SealedValue(kept_as, GIVEN_VERSION, *envelope))

    def _may_ask(self, command_id: str) -> bool:
        now_s = self._clock.monotonic_s()
        asked = self._asked.get(command_id)
        if asked is None or now_s - asked.since_s >= MINUTE_S:
            asked = _Asked(now_s, 0)
        self._asked.put(command_id, asked._replace(times=asked.times + 1))
        return asked.times < MAX_HIDDEN_A_MINUTE


log = logging.getLogger(__name__)

OFFERED_VERSION: Final = 1
"""The version of credentials that the installation offers; 0 means that nothing is stored."""


class SecretsResponder:
    """Sends stored credentials, sealed to the asking worker, and hides secrets that workers read themselves; the audit
    records both.

    Attributes:
        refusals: A sample of the refused questions, for the audit.
        used: The secrets that executions were given.

    Args:
        keys: The keys that encrypt credentials; ``None`` if this server has no key.
        offered: Credentials that the installation itself offers where none is stored, as text by lower-case name
            (``local_postgres``).
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
        self.used = UsedSecrets(credentials, keys)

    async def answer(self, question: SecretQuestion, pool: str) -> SecretAnswer:
        """Returns the sealed credential, or the reason for refusing it.

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
        """Hides a secret that a worker has read, after recording it in the audit. See :meth:`HiddenValues.answer`."""
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
        """Returns a stored credential for use by this server alone; ``None`` if the name is not stored.

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
        if self._keys is None:
            raise NoetlError(f"no key is configured: set NOETL_CREDENTIAL_KEY for the servers; {KEY_HINT}")
        info = stored.info
        return decrypt(self._keys, info.name, info.version, SealedEnvelope(info.key_id, stored.sealed))


def _audited_call(question: SecretQuestion | HideQuestion, pool: str, at_ms: int) -> AuditedCall:
    """Returns the audit entry for a worker that gets a stored secret or reads one itself, without the value."""
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
    )


def _audited_answer(answer: SecretAnswer) -> AuditedAnswer:
    return AuditedAnswer(200, made=f"version {answer.version}")


def _sealed_answer(
    question: SecretQuestion, version: int, value: Callable[[], bytes], *, is_operators: bool = False
) -> SecretAnswer:
    """Seals the credential to the asking worker, or returns the reason for refusing it."""
    try:
        sealed = seal(value(), question.public_key, subject_of(question, version))
    except NoetlError as error:
        return _refused_answer(question, error)
    return SecretAnswer(version=version, public_key=sealed.public_key, body=sealed.body, is_operators=is_operators)


def _refused_answer(question: SecretQuestion, error: NoetlError) -> SecretAnswer:
    log.warning("credential %s refused: %s", question.name, error)
    return SecretAnswer(refused=str(error))

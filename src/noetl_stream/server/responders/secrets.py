"""Hands out stored credentials to workers, sealed to the one that asks (LANGUAGE §11)."""

from __future__ import annotations

import logging
from collections.abc import Collection

from noetl_stream.errors import NoetlError, PayloadRefused, Unreachable
from noetl_stream.model import codec
from noetl_stream.model.messages import SecretAnswer, SecretQuestion, subject_of
from noetl_stream.playbook.diagnostics import nearest
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.ports.credentials import CREDENTIAL_NAME, Credentials, StoredCredential
from noetl_stream.ports.store import Store
from noetl_stream.sealing.handover import seal
from noetl_stream.sealing.keys import KEY_HINT, KeyRing, SealedEnvelope, decrypt

log = logging.getLogger(__name__)


class SecretsResponder:
    """Answers requests for stored credentials.

    Args:
        keys: The keys they are encrypted with; ``None`` if this server has no key.
        offered: Names the installation itself offers its workers (``local_postgres``).
    """

    def __init__(
        self, credentials: Credentials, store: Store, keys: KeyRing | None, offered: Collection[str] = ()
    ) -> None:
        self._credentials = credentials
        self._store = store
        self._keys = keys
        self._offered = frozenset(offered)

    async def listen(self, bus: Bus, group: str) -> Subscription:
        """Starts answering, sharing the load with the others of ``group``."""

        async def handle(subject: str, body: bytes, reply: str) -> None:
            try:
                answer = await self.answer(codec.decode_secret_question(body))
            except Unreachable as error:
                # No answer: the worker retries, and another server may reach the database.
                log.warning("cannot answer a request for a credential: %s", error)
                return
            except PayloadRefused as error:
                answer = SecretAnswer(refused=error.message)
            if reply:
                bus.send(reply, codec.encode(answer))

        return await bus.listen(subjects.ASK_SECRET, handle, group)

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
        if stored is None:
            names = [info.name for info in await self._credentials.list_all()]
            return SecretAnswer(near=nearest(question.name, names) or "")
        try:
            return self._sealed(question, stored)
        except NoetlError as error:
            return self._refused(question, str(error))

    async def names(self) -> frozenset[str]:
        """Every credential a playbook can name: those stored, and those the installation offers."""
        return self._offered.union(info.name for info in await self._credentials.list_all())

    def _sealed(self, question: SecretQuestion, stored: StoredCredential) -> SecretAnswer:
        if self._keys is None:
            raise NoetlError(f"no key is configured: set NOETL_CREDENTIAL_KEY for the servers; {KEY_HINT}")
        version = stored.info.version
        value = decrypt(self._keys, question.name, version, SealedEnvelope(stored.info.key_id, stored.sealed))
        sealed = seal(value, question.public_key, subject_of(question, version))
        return SecretAnswer(version=version, public_key=sealed.public_key, body=sealed.body)

    def _refused(self, question: SecretQuestion, reason: str) -> SecretAnswer:
        log.warning("credential %s refused: %s", question.name, reason)
        return SecretAnswer(refused=reason)

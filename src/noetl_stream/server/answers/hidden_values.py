"""Keeps secrets that executions get from outside the credential store, encrypted, so as to hide them (LANGUAGE §11).

Workers report what they read themselves: their variables and files, tokens, results of plugins, secrets kept for a
whole playbook. Servers add the credentials that the installation offers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

from noetl_stream.errors import PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model.json import codec
from noetl_stream.model.messages import HideAnswer, HideQuestion, hidden_as
from noetl_stream.model.secrets.credential import check_secrets
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.credentials import Credentials, SealedValue, given_name
from noetl_stream.ports.stores.identities import audit_text
from noetl_stream.protocol.nats_permissions import worker_identity
from noetl_stream.sealing.handover import HandoverKey, Sealed
from noetl_stream.sealing.keys import KeyRing, encrypt
from noetl_stream.sealing.signing import Signer

MAX_HIDDEN_BYTES: Final = 128 * 1024
"""The most bytes of one hidden value, as JSON."""

MAX_HIDDEN_A_MINUTE: Final = 100
MINUTE_S: Final = 60.0
"""The period in which a command may have :data:`MAX_HIDDEN_A_MINUTE` values hidden. Further questions wait."""

COMMANDS_COUNTED: Final = 10_000
"""How many commands have their questions counted, the last to ask."""

GIVEN_VERSION: Final = 1
SERVER: Final = "server"


class _Asked(NamedTuple):
    since_s: float
    times: int


class HiddenValues:
    """Keeps secrets with the executions that read them.

    Args:
        keys: The keys that encrypt values. Without a key none is kept, since gateways then hide none.
    """

    def __init__(self, credentials: Credentials, clock: Clock, keys: KeyRing | None) -> None:
        self._credentials = credentials
        self._clock = clock
        self._keys = keys
        self._marks = Signer(keys, "given value") if keys is not None else None
        self._asked: LruCache[str, _Asked] = LruCache(COMMANDS_COUNTED)

    @cached_property
    def _key(self) -> HandoverKey:
        """The key that workers seal values to. Most servers never need one."""
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

"""Requests stored credentials from any server, sealed to a key made for the one request (LANGUAGE §11)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from noetl_stream.errors import NoetlError
from noetl_stream.model import codec
from noetl_stream.model.credential import CredentialValue
from noetl_stream.model.messages import SecretQuestion, subject_of
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.sealing.handover import ReplyKey, Sealed
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.worker.waiting import ask


@dataclass(frozen=True, slots=True)
class Secret:
    """A resolved secret.

    Attributes:
        value: The value of ``keychain.<name>``.
        version: The version of a stored credential.
        expires_ms: When it expires, ms since the epoch; ``None`` if that is unknown.
        token: For a token, what ``auth`` uses of it.
    """

    value: CredentialValue = field(repr=False)
    version: int | None = None
    expires_ms: int | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def credential(self) -> CredentialValue:
        """The value given to a tool for ``auth``: a copy, since the cached one must not change."""
        return deepcopy(self.value) if self.token is None else {"token": self.token}


@dataclass(frozen=True, slots=True)
class NotStored:
    """The name is not stored; ``near`` is a similar one, or ''."""

    near: str


class SecretsClient:
    """Asks on :data:`~noetl_stream.ports.subjects.ASK_SECRET` until a server answers."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock

    async def find(self, execution_id: str, name: str) -> Secret | NotStored:
        """The stored credential ``name``.

        Raises:
            ToolFailure: kind ``credential``: it is stored but was refused; the message says why.
        """
        reply_key = ReplyKey()
        asked = SecretQuestion(execution_id, name, reply_key.public_key)
        body = await ask(self._bus, self._clock, subjects.ASK_SECRET, codec.encode(asked))
        try:
            answer = codec.decode_secret_answer(body)
            if answer.refused:
                raise _refused(name, answer.refused)
            if not answer.version:
                return NotStored(answer.near)
            sealed = Sealed(answer.public_key, answer.body)
            value = codec.decode_json(reply_key.open(sealed, subject_of(asked, answer.version)))
        except NoetlError as error:
            raise _refused(name, error.message) from None
        return Secret(value, version=answer.version)


def _refused(name: str, reason: str) -> ToolFailure:
    return ToolFailure.of("credential", f"credential {name!r}: {reason}")

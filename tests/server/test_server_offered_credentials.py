"""What the installation offers, as `local_postgres`: sealed to the worker that asks, as stored credentials are."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.model.json import codec
from noetl_stream.model.messages import SecretAnswer, SecretQuestion, ShownCommand, subject_of
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.sealing.handover import HandoverKey, Sealed
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_testkit.memory.access import MemoryAudit

KEYS = KeyRing(read_key(new_key(), "a test"))
DSN = "postgresql://playbooks:very-secret@127.0.0.1:5432/playbooks"
SHOWN = ShownCommand("living", "step-run-1", "command-1", 1, "a capability")


class Installation:
    """A server that offers `local_postgres`, with a store of its own."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.audit = MemoryAudit()
        self.stored = MemoryCredentials(clock)
        self._secrets = SecretsResponder(self.stored, self.audit, clock, KEYS, {"local_postgres": DSN})

    async def ask(self, name: str) -> tuple[SecretAnswer, object]:
        """The answer, and the value that only the one who asked can open."""
        key = HandoverKey()
        question = SecretQuestion(SHOWN, name, key.public_key, worker="worker-1")
        answer = await self._secrets.answer(question, "gpu")
        if not answer.version:
            return answer, None
        opened = key.open(Sealed(answer.public_key, answer.body), subject_of(question, answer.version))
        return answer, codec.decode_json(opened)


@pytest.fixture
def installation() -> Installation:
    return Installation()


async def test_credentials_of_the_installation_are_sealed_too(installation: Installation) -> None:
    answer, value = await installation.ask("local_postgres")
    assert value == DSN
    assert b"very-secret" not in codec.encode(answer)
    [entry] = await installation.audit.page(10, None, None)
    assert (entry.attempt.principal, entry.attempt.target) == ("worker-gpu", "local_postgres")


async def test_a_stored_credential_of_that_name_comes_first(installation: Installation) -> None:
    await DirectCredentials(installation.stored, KEYS).put("local_postgres", "stored value", "ann")
    assert (await installation.ask("local_postgres"))[1] == "stored value"


async def test_an_unknown_name_is_answered_with_a_similar_offered_one(installation: Installation) -> None:
    answer, value = await installation.ask("local_postgre")
    assert (answer.near, value) == ("local_postgres", None)

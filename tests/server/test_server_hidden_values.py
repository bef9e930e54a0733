"""What servers do with a value that a worker read itself (LANGUAGE §11, PROTOCOL §7 *Capabilities*)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.errors import PayloadRefused, Unreachable
from noetl_stream.model.json import codec
from noetl_stream.model.messages import HideAnswer, HideQuestion, SecretQuestion, ShownCommand, hidden_as
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.ports.stores.credentials import MAX_VALUES_GIVEN, SealedValue
from noetl_stream.ports.stores.identities import AuditedAnswer
from noetl_stream.sealing.handover import CannotOpen, HandoverKey, seal
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.server.answers.credential_values import (
    MAX_HIDDEN_A_MINUTE,
    MAX_HIDDEN_BYTES,
    MINUTE_S,
    SecretsResponder,
)
from noetl_stream.storage.used_secrets import MAX_TEXTS_GIVEN, UsedSecrets
from noetl_testkit.memory.access import MemoryAudit

KEYS = KeyRing(read_key(new_key(), "a test"))
VALUE = "a very secret value"
SHOWN = ShownCommand("living", "step-run-1", "command-1", 1, "a capability")


class Side:
    """A server's side of secrets, in memory, and what a gateway hides."""

    def __init__(self, keys: KeyRing | None = KEYS, audit: MemoryAudit | None = None) -> None:
        self.clock = ManualClock()
        self.audit = audit or MemoryAudit()
        self.credentials = MemoryCredentials(self.clock)
        self.secrets = SecretsResponder(self.credentials, self.audit, self.clock, keys, {"local_postgres": VALUE})
        self.used = UsedSecrets(self.credentials, KEYS)

    async def question(self, value: Any, command: ShownCommand = SHOWN, name: str = "token") -> HideQuestion:
        """One with the value sealed to this server."""
        asking = HideQuestion(command, name, worker="worker-1")
        answer = await self.secrets.hide(asking, "gpu")
        assert answer is not None and answer.server_key
        sealed = seal(codec.encode(value), answer.server_key, hidden_as(asking))
        return replace(asking, server_key=answer.server_key, public_key=sealed.public_key, body=sealed.body)

    async def hide(self, value: Any, command: ShownCommand = SHOWN, pool: str = "gpu") -> HideAnswer | None:
        return await self.secrets.hide(await self.question(value, command), pool)

    async def shown(self, text: str, execution_id: str = "living") -> str:
        return await self.used.hide(execution_id, text)

    async def kept(self) -> list[SealedValue]:
        return (await self.credentials.used_by(["living"])).get("living", [])


@pytest.fixture
def side() -> Side:
    return Side()


async def test_the_value_is_hidden_in_its_own_execution_alone(side: Side) -> None:
    assert await side.hide({"username": "ann", "password": VALUE}) == HideAnswer()
    assert await side.shown(f"ann has {VALUE}") == "ann has ***"
    assert await side.shown(VALUE, "another") == VALUE


async def test_a_hidden_value_is_stored_encrypted_once(side: Side) -> None:
    for _ in range(3):
        await side.hide(VALUE)
    [kept] = await side.kept()
    assert kept.name.startswith("worker-gpu/") and kept.name.endswith("/token")
    assert VALUE.encode() not in b"".join((kept.sealed, kept.name.encode()))


async def test_the_names_of_two_executions_do_not_say_that_their_values_are_the_same(side: Side) -> None:
    for command in (SHOWN, replace(SHOWN, execution_id="another")):
        await side.hide(VALUE, command)
    found = await side.credentials.used_by(["living", "another"])
    assert found["living"][0].name != found["another"][0].name


async def test_each_value_is_in_the_audit_without_the_value(side: Side) -> None:
    await side.hide(VALUE)
    [entry] = await side.audit.page(10, None, None)
    attempt = entry.attempt
    assert (attempt.principal, attempt.role, attempt.remote) == ("worker-gpu", "worker", "worker-1")
    assert (attempt.operation, attempt.target, attempt.correlation_id) == ("readSecret", "token", "living/command-1")
    assert entry.answer == AuditedAnswer(200)
    assert VALUE not in repr(entry)


async def test_a_value_that_is_not_in_the_audit_reaches_no_task() -> None:
    class Away(MemoryAudit):
        async def add(self, attempt: Any, answer: Any) -> None:
            raise Unreachable("the store is away")

    side = Side(audit=Away())
    with pytest.raises(Unreachable):
        await side.hide(VALUE)


async def test_a_server_without_a_key_keeps_nothing_and_holds_nobody_up() -> None:
    side = Side(keys=None)
    assert await side.secrets.hide(HideQuestion(SHOWN, "token"), "gpu") == HideAnswer()
    assert await side.kept() == []


async def test_credentials_of_the_installation_are_hidden_where_they_were_handed_out(side: Side) -> None:
    answer = await side.secrets.answer(SecretQuestion(SHOWN, "local_postgres", HandoverKey().public_key), "gpu")
    assert answer.version
    assert (await side.shown(VALUE), await side.shown(VALUE, "another")) == ("***", VALUE)


# --- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["the", "", {"password": "abc"}, ["no"], 12, "postgresql://ann:pw@db/shop"])
async def test_a_secret_too_short_to_differ_from_words_is_not_hidden(side: Side, value: Any) -> None:
    with pytest.raises(PayloadRefused, match="fewer than 4 characters"):
        await side.hide(value)
    assert await side.kept() == []


async def test_a_value_has_a_bound(side: Side) -> None:
    assert await side.hide("x" * (MAX_HIDDEN_BYTES - 2)) == HideAnswer()
    with pytest.raises(PayloadRefused, match=f"larger than {MAX_HIDDEN_BYTES} bytes"):
        await side.hide("x" * (MAX_HIDDEN_BYTES - 1))


@pytest.mark.parametrize("other", [{"execution_id": "another"}, {"command_id": "command-2"}])
async def test_a_value_sealed_for_another_command_cannot_be_opened(side: Side, other: dict[str, str]) -> None:
    question = await side.question(VALUE)
    with pytest.raises(CannotOpen):
        await side.secrets.hide(replace(question, command=replace(SHOWN, **other)), "gpu")
    with pytest.raises(CannotOpen):
        await side.secrets.hide(replace(question, name="another"), "gpu")


async def test_a_command_that_has_very_much_hidden_waits(side: Side) -> None:
    for number in range(MAX_HIDDEN_A_MINUTE):
        assert await side.hide(f"value {number}") == HideAnswer()
    assert await side.hide("one more value") is None
    assert await side.hide("one more value", replace(SHOWN, command_id="command-2")) == HideAnswer()
    assert len(await side.audit.page(1_000, None, None)) == MAX_HIDDEN_A_MINUTE + 1
    side.clock.advance(MINUTE_S)
    assert await side.hide("one more value") == HideAnswer()


# --- many -------------------------------------------------------------------------------------------------------------


async def test_a_pool_with_very_many_hidden_values_takes_no_place_of_others(side: Side) -> None:
    await side.hide("value of another pool", pool="cpu")
    for number in range(MAX_VALUES_GIVEN + 1):
        await side.hide(f"value number {number}", replace(SHOWN, command_id=f"command-{number}"))
    assert await side.shown("value of another pool; value number 1; value number 100") == "***; ***; ***"
    assert len(await side.kept()) == MAX_VALUES_GIVEN + 1


async def test_of_a_value_with_very_many_lines_the_whole_and_the_first_are_hidden(side: Side) -> None:
    lines = [f"line number {number:04}" for number in range(MAX_TEXTS_GIVEN + 100)]
    await side.hide("\n".join(lines))
    assert await side.shown("\n".join(lines)) == "***"
    assert await side.shown(lines[MAX_TEXTS_GIVEN - 2]) == "***"
    assert await side.shown(lines[MAX_TEXTS_GIVEN]) == lines[MAX_TEXTS_GIVEN]


async def test_values_of_very_many_signs_are_hidden_as_they_are(side: Side) -> None:
    """Searching for each way to escape them would cost a gateway much time."""
    last, first = "last" + '"/' * 300, "first" + "\\ü" * 3_000
    for value in (first, last):
        await side.hide(value)
    escaped = last.replace("/", "\\/")
    assert await side.shown(f"{first} {last} {escaped}") == "*** *** ***"
    assert await side.shown(first.replace("ü", "\\u00fc")) != "***"


async def test_no_value_of_a_worker_takes_the_place_of_a_stored_one(side: Side) -> None:
    await DirectCredentials(side.credentials, KEYS).put("pg", VALUE, "ann")
    read = await side.credentials.get("pg")
    assert read is not None and await side.credentials.record_use("living", read)
    for number in range(10):
        await side.hide("\n".join(f"line {line:04} of pool {number}" for line in range(1_000)), pool=f"pool-{number}")
    assert await side.shown(f"{VALUE}, line 0000 of pool 9") == "***, ***"

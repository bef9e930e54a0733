"""What servers answer to questions for secrets, and which playbooks they let begin (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.access import MemoryCredentials
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.client.credentials import DirectCredentials
from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.errors import Unreachable
from noetl_stream.model import codec
from noetl_stream.model.messages import SecretAnswer, SecretQuestion, subject_of
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports import subjects
from noetl_stream.sealing.handover import ReplyKey, Sealed
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.server.credentials import SecretsResponder, missing_credentials, with_credentials
from noetl_stream.server.responder import answering
from noetl_stream.testing.conformance.store_rows import execution_row, taken, tick_of
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.worker.waiting import UNAVAILABLE

KEYS = KeyRing(read_key(new_key(), "a test"))
VALUE = "a very secret value"


class Vault:
    """A server's side of secrets, in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.credentials = MemoryCredentials(self.clock)

    async def open(self) -> None:
        rows = [execution_row("living"), execution_row("ended", status="completed", finished_ms=5)]
        await self.store.commit(tick_of("one", await taken(self.store), executions=rows))
        await DirectCredentials(self.credentials, KEYS).put("pg", VALUE, "ann")

    def answers(self, keys: KeyRing | None = KEYS, offered: Collection[str] = ()) -> SecretsResponder:
        return SecretsResponder(self.credentials, self.store, keys, offered)

    async def ask(self, keys: KeyRing | None = KEYS, **changes: Any) -> tuple[SecretQuestion, ReplyKey, SecretAnswer]:
        question = ReplyKey()
        given: dict[str, Any] = {"execution_id": "living", "name": "pg", "public_key": question.public_key, **changes}
        request = SecretQuestion(**given)
        return request, question, await self.answers(keys).answer(request)


@pytest.fixture
async def vault() -> Vault:
    made = Vault()
    await made.open()
    return made


async def test_the_value_is_sealed_to_the_one_who_asked(vault: Vault) -> None:
    request, question, answer = await vault.ask()
    assert answer.version == 1
    value = question.open(Sealed(answer.public_key, answer.body), subject_of(request, 1))
    assert codec.decode_json(value) == VALUE
    assert VALUE.encode() not in codec.encode(answer)


@pytest.mark.parametrize(
    ("execution_id", "reason"),
    [("ended", "has ended: it gets no credentials"), ("none", "is unknown: it gets no credentials")],
)
async def test_only_a_living_execution_gets_secrets(vault: Vault, execution_id: str, reason: str) -> None:
    _, _, answer = await vault.ask(execution_id=execution_id)
    assert answer == SecretAnswer(refused=f"execution {execution_id} {reason}")


@pytest.mark.parametrize(("name", "near"), [("pgg", "pg"), ("quite different", ""), ("x" * 100_000, "")])
async def test_an_unknown_name_is_answered_with_the_nearest(vault: Vault, name: str, near: str) -> None:
    _, _, answer = await vault.ask(name=name)
    assert answer == SecretAnswer(near=near)


async def test_a_server_without_a_key_says_so(vault: Vault) -> None:
    _, _, answer = await vault.ask(keys=None)
    assert answer.refused.startswith("no key is configured: set NOETL_CREDENTIAL_KEY for the servers")


async def test_a_server_with_another_key_names_the_one_it_lacks(vault: Vault) -> None:
    _, _, answer = await vault.ask(keys=KeyRing(read_key(new_key(), "a test")))
    assert f"is encrypted with key {KEYS.current.id}, which is not configured" in answer.refused


async def test_a_question_without_a_proper_key_gets_nothing(vault: Vault) -> None:
    _, _, answer = await vault.ask(public_key=b"short")
    assert "an X25519 public key of 32 bytes" in answer.refused
    assert answer.body == b""


async def test_questions_on_the_bus_are_answered(vault: Vault) -> None:
    bus = MemoryBroker(vault.clock).bus
    subscription = await bus.listen(subjects.ASK_SECRET, answering(bus, vault.answers().reply), "servers")
    request = SecretQuestion("living", "pg", ReplyKey().public_key)
    body = await bus.ask(subjects.ASK_SECRET, codec.encode(request), 1)
    assert body is not None and codec.decode_secret_answer(body).version == 1
    damaged = await bus.ask(subjects.ASK_SECRET, b"[]", 1)
    assert damaged is not None and "cannot read this message" in codec.decode_secret_answer(damaged).refused
    await subscription.close()


async def test_a_server_that_cannot_reach_its_database_says_so_and_is_asked_again(vault: Vault) -> None:
    class Away(MemoryCredentials):
        async def get(self, name: str) -> Any:
            raise Unreachable("the store is away")

    bus = MemoryBroker(vault.clock).bus
    away = SecretsResponder(Away(vault.clock), vault.store, KEYS)
    for answers in (away, vault.answers()):
        await bus.listen(subjects.ASK_SECRET, answering(bus, answers.reply), "servers")
    request = codec.encode(SecretQuestion("living", "pg", ReplyKey().public_key))
    assert await bus.ask(subjects.ASK_SECRET, request, 1) == UNAVAILABLE
    body = await bus.ask(subjects.ASK_SECRET, request, 1)
    assert body is not None and codec.decode_secret_answer(body).version == 1


PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: test, path: tests/keychain}
keychain:
- {name: pg, kind: postgres_credential}
- {name: api, kind: credential, credential: local_postgres}
- {name: crm, kind: oauth2_client_credentials, token_url: "https://a.example/token", credential: crm_clientt}
- {name: own, kind: oauth2_client_credentials, token_url: "https://a.example/token", client_id: a, client_secret: abcd}
- {name: home, kind: env, variable: HOME}
workflow: [{step: start, tool: {kind: noop}}]
"""


def plan() -> Plan:
    return compile_playbook(PLAYBOOK, {"noop": NoopTool.spec})


def test_a_missing_credential_is_named_with_its_line_and_the_nearest_name() -> None:
    known = {"pg", "local_postgres", "crm_client"}
    [missing] = missing_credentials(plan().keychain, known, "a.yaml")
    assert (missing.severity, missing.code, missing.file, missing.line) == ("error", "missing_credential", "a.yaml", 7)
    assert missing.message == "the keychain's `crm` needs the credential `crm_clientt`, which is not stored"
    assert missing.hint == "did you mean `crm_client`? store it: `noetl-stream credential set crm_clientt`"
    assert missing_credentials(plan().keychain, known | {"crm_clientt"}) == []


async def test_a_playbook_whose_credentials_are_missing_does_not_begin(vault: Vault) -> None:
    refusal = await with_credentials(plan(), vault.answers())
    assert isinstance(refusal, InvalidPlan)
    assert refusal.reason.startswith("line 6: the keychain's `api` needs the credential `local_postgres`")
    assert [diagnostic["line"] for diagnostic in refusal.diagnostics] == [6, 7]


async def test_a_playbook_whose_credentials_are_there_begins(vault: Vault) -> None:
    await DirectCredentials(vault.credentials, KEYS).put("crm_clientt", "a secret", "ann")
    whole = plan()
    assert await with_credentials(whole, vault.answers(offered=["local_postgres"])) is whole
    assert await with_credentials(whole, None) is whole
    refusal = InvalidPlan("broken", [])
    assert await with_credentials(refusal, vault.answers()) is refusal


async def test_a_playbook_that_needs_no_stored_credential_asks_no_database() -> None:
    class Untouched(MemoryCredentials):
        async def list_all(self) -> Any:
            raise AssertionError("nobody needs to know")

    clock = ManualClock()
    answers = SecretsResponder(Untouched(clock), MemoryStore(clock), None)
    whole = compile_playbook(
        PLAYBOOK.replace("\n- {name: pg", "\n# {name: pg")
        .replace("\n- {name: api", "\n# {")
        .replace("\n- {name: crm", "\n# {"),
        {"noop": NoopTool.spec},
    )
    assert await with_credentials(whole, answers) is whole

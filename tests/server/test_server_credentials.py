"""What servers answer to questions for secrets, and which playbooks they let begin (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.errors import Unreachable
from noetl_stream.model.json import codec
from noetl_stream.model.messages import SecretAnswer, SecretQuestion, ShownCommand, subject_of
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.credentials import NewCredential, StoredCredential
from noetl_stream.ports.stores.identities import MAX_AUDIT_CHARACTERS, AuditedAnswer
from noetl_stream.sealing.handover import HandoverKey, Sealed
from noetl_stream.sealing.keys import KeyRing, encrypt, new_key, read_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.inputs.execution_starter import missing_credentials, with_credentials
from noetl_stream.storage.refusal_audit import ENTRIES_OF_ONE
from noetl_stream.tools.pipeline import NoopTool
from noetl_testkit.memory.access import MemoryAudit

KEYS = KeyRing(read_key(new_key(), "a test"))
VALUE = "a very secret value"
SHOWN = ShownCommand("living", "step-run-1", "command-1", 1, "a capability")


class Vault:
    """A server's side of secrets, in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.audit = MemoryAudit()
        self.credentials = MemoryCredentials(self.clock)

    async def open(self) -> None:
        await DirectCredentials(self.credentials, KEYS).put("pg", VALUE, "ann")

    def answers(self, keys: KeyRing | None = KEYS, offered: Collection[str] = ()) -> SecretsResponder:
        return SecretsResponder(self.credentials, self.audit, self.clock, keys, offered)

    async def ask(
        self, keys: KeyRing | None = KEYS, **changes: Any
    ) -> tuple[SecretQuestion, HandoverKey, SecretAnswer]:
        question = HandoverKey()
        given: dict[str, Any] = {"name": "pg", "public_key": question.public_key, **changes}
        request = SecretQuestion(SHOWN, **given, worker="worker-1")
        return request, question, await self.answers(keys).answer(request, "gpu")


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


async def test_each_value_handed_out_is_in_the_audit_without_the_value(vault: Vault) -> None:
    await vault.ask()
    [entry] = await vault.audit.page(10, None, None)
    attempt = entry.attempt
    assert (attempt.principal, attempt.role, attempt.remote) == ("worker-gpu", "worker", "worker-1")
    assert (attempt.operation, attempt.target, attempt.correlation_id) == ("readCredential", "pg", "living/command-1")
    assert entry.answer == AuditedAnswer(200, made="version 1")
    assert VALUE not in repr(entry)


async def test_a_value_handed_out_is_kept_as_used_by_its_execution(vault: Vault) -> None:
    assert await vault.credentials.used_by(["living"]) == {}
    await vault.ask()
    assert [one.name for one in (await vault.credentials.used_by(["living"]))["living"]] == ["pg"]


async def test_a_value_that_is_replaced_while_it_is_read_is_not_handed_out(vault: Vault) -> None:
    class Racing(MemoryCredentials):
        async def get(self, name: str) -> StoredCredential | None:
            read = await super().get(name)
            if read is not None and read.info.version == 1:
                await self.put(
                    NewCredential(name, "", "", (), 2, *encrypt(KEYS, name, 2, codec.encode("the next one")))
                )
            return read

    vault.credentials = Racing(vault.clock)
    await vault.credentials.put(NewCredential("pg", "", "", (), 1, *encrypt(KEYS, "pg", 1, codec.encode(VALUE))))
    request, question, answer = await vault.ask()
    value = question.open(Sealed(answer.public_key, answer.body), subject_of(request, 2))
    assert (answer.version, codec.decode_json(value)) == (2, "the next one")
    assert [one.version for one in (await vault.credentials.used_by(["living"]))["living"]] == [2]


async def test_nothing_is_handed_out_that_cannot_be_recorded(vault: Vault) -> None:
    class Away(MemoryAudit):
        async def add(self, attempt: Any, answer: Any) -> None:
            raise Unreachable("the store is away")

    vault.audit = Away()
    with pytest.raises(Unreachable):
        await vault.ask()


async def test_refusals_are_recorded_in_the_audit(vault: Vault) -> None:
    await vault.ask(name="pgg")
    await vault.ask(name="x\n" * 100_000)
    await vault.ask(public_key=b"short")
    refused, long, unknown = await vault.audit.page(10, None, None)
    assert unknown.attempt.principal == "worker-gpu"
    assert (unknown.attempt.operation, unknown.attempt.target) == ("readCredential", "pgg")
    assert [one.answer and one.answer.status for one in (unknown, long, refused)] == [404, 404, 403]
    assert long.attempt.target == "x?" * (MAX_AUDIT_CHARACTERS // 2)
    assert refused.answer is not None and "public key of 32 bytes" in refused.answer.reason


async def test_of_many_refusals_of_a_pool_a_few_are_entries_and_the_others_a_number(vault: Vault) -> None:
    responder = vault.answers()
    question = SecretQuestion(SHOWN, "pgg", HandoverKey().public_key, "worker-1")
    for _ in range(500):
        await responder.answer(question, "gpu")
    assert len(await vault.audit.page(1_000, None, None)) == ENTRIES_OF_ONE
    await responder.refusals.finish_sample()
    entries = await vault.audit.page(1_000, None, None)
    assert len(entries) == ENTRIES_OF_ONE + 1
    assert sum(1 + entry.answer.left_out for entry in entries if entry.answer) == 500


@pytest.mark.parametrize(("name", "near"), [("pgg", "pg"), ("quite different", ""), ("x" * 100_000, "")])
async def test_an_unknown_name_is_answered_with_the_nearest(vault: Vault, name: str, near: str) -> None:
    _, _, answer = await vault.ask(name=name)
    assert answer == SecretAnswer(near=near)


async def test_a_server_without_a_key_reports_it(vault: Vault) -> None:
    _, _, answer = await vault.ask(keys=None)
    assert answer.refused.startswith("no key is configured: set NOETL_CREDENTIAL_KEY for the servers")


async def test_a_server_with_another_key_names_the_one_it_lacks(vault: Vault) -> None:
    _, _, answer = await vault.ask(keys=KeyRing(read_key(new_key(), "a test")))
    assert f"is encrypted with key {KEYS.current.id}, which is not configured" in answer.refused


async def test_a_question_without_a_proper_key_gets_nothing(vault: Vault) -> None:
    _, _, answer = await vault.ask(public_key=b"short")
    assert "an X25519 public key of 32 bytes" in answer.refused
    assert answer.body == b""


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
    answers = SecretsResponder(Untouched(clock), MemoryAudit(), clock, None)
    whole = compile_playbook(
        PLAYBOOK.replace("\n- {name: pg", "\n# {name: pg")
        .replace("\n- {name: api", "\n# {")
        .replace("\n- {name: crm", "\n# {"),
        {"noop": NoopTool.spec},
    )
    assert await with_credentials(whole, answers) is whole

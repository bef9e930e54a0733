"""Who sent a webhook is a server's to say; a stranger learns nothing from how it says no (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.model.aggregates import TriggerRegistered, TriggerTerms, Verification
from noetl_stream.model.json import codec
from noetl_stream.model.messages import WebhookAnswer, WebhookQuestion
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.executions.submit import ask_aggregate
from noetl_stream.sealing.keys import key_ring, new_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.answers.responder import Webhooks
from noetl_stream.settings.grants import GrantsFile
from noetl_testkit.memory.access import MemoryAudit

PATH, SECRET = "tests/hook", "It's a Secret to Everybody"
BODY = b'{"after": "6113728f"}'
SIGNED = "sha256=" + hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()


class Recorded:
    """A port that notes the verbs it is asked."""

    def __init__(self, real: Any, asked: list[str]) -> None:
        self._real, self._asked = real, asked

    def __getattr__(self, verb: str) -> Any:
        self._asked.append(verb)
        return getattr(self._real, verb)


class HookStage:
    def __init__(self, stage: Stage) -> None:
        keys = key_ring((new_key(),), "a key")
        self.asked: list[str] = []
        self.credentials = MemoryCredentials(stage.clock)
        self.direct = DirectCredentials(self.credentials, keys)
        self._secrets = SecretsResponder(Recorded(self.credentials, self.asked), MemoryAudit(), stage.clock, keys)
        self._stage = stage
        self.limit_to(None)

    def limit_to(self, grants: GrantsFile | None) -> None:
        store = Recorded(self._stage.store.real, self.asked)
        self.webhooks = Webhooks(store, self._secrets, self._stage.clock, grants)

    async def answer(self, path: str, **headers: str) -> tuple[WebhookAnswer, list[str]]:
        """The answer, and what was looked up for it."""
        self.asked.clear()
        question = WebhookQuestion(path, "POST", {k.replace("_", "-"): v for k, v in headers.items()}, "", BODY)
        return await self.webhooks.answer([], codec.encode(question)), list(self.asked)


@pytest.fixture
async def hooks(stage: Stage) -> HookStage:
    """Over a server that has a trigger of GitHub's form."""
    made = HookStage(stage)
    await stage.server()
    await made.direct.put("hook", SECRET, "test")
    terms = TriggerTerms(
        playbook=await stage.register(ONE_STEP), webhook=Verification(form="github", credential="hook")
    )
    fact = TriggerRegistered("register", PATH, terms=terms, revision=1)
    await ask_aggregate(stage.requests, stage.broker.bus, stage.clock, "starter", fact)
    return made


async def test_a_signed_delivery_is_accepted_and_stored_without_its_proof(hooks: HookStage) -> None:
    found, _ = await hooks.answer(PATH, x_hub_signature_256=SIGNED, x_github_event="push")
    assert found.is_verified and found.identity
    assert found.event == {"method": "POST", "headers": {"x-github-event": "push"}, "body": BODY.decode()}


async def test_an_unknown_webhook_and_a_wrong_signature_get_the_same_answer_after_the_same_work(
    hooks: HookStage,
) -> None:
    wrong = await hooks.answer(PATH, x_hub_signature_256="sha256=" + "0" * 64)
    unknown = await hooks.answer("tests/nothing", x_hub_signature_256=SIGNED)
    assert wrong == unknown == (WebhookAnswer(), ["aggregates", "get"])


async def test_a_delivery_without_its_credential_is_not_believed(hooks: HookStage) -> None:
    await hooks.direct.delete("hook", "test")
    for signature in (SIGNED, "sha256=" + hmac.new(b"", BODY, hashlib.sha256).hexdigest()):
        assert (await hooks.answer(PATH, x_hub_signature_256=signature))[0] == WebhookAnswer()


@pytest.mark.parametrize(("granted", "believed"), [("hook", True), ("another", False)])
async def test_a_webhook_verifies_with_a_credential_that_its_path_was_granted(
    hooks: HookStage, tmp_path: Path, granted: str, believed: bool
) -> None:
    file = tmp_path / "grants.yaml"
    file.write_text(f"grants: [ {{ paths: [tests], credentials: [{granted}] }} ]")
    hooks.limit_to(GrantsFile(file))
    found, asked = await hooks.answer(PATH, x_hub_signature_256=SIGNED)
    assert found.is_verified is believed
    assert asked == ["aggregates", "get"], "the same work for both"


async def test_a_new_secret_counts_at_once(hooks: HookStage) -> None:
    await hooks.direct.put("hook", {"secrets": ["the new one", SECRET]}, "test")
    assert (await hooks.answer(PATH, x_hub_signature_256=SIGNED))[0].is_verified
    await hooks.direct.put("hook", {"secret": "the new one"}, "test")
    assert (await hooks.answer(PATH, x_hub_signature_256=SIGNED))[0] == WebhookAnswer()

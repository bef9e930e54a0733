"""The credential store and a server beside the stage's worker, which reads secrets for its tasks."""

from __future__ import annotations

from typing import Any

from worker_stage import EXECUTION, POOL, Stage, inputs_of

from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.json.codec import decode_hide_question, decode_json, decode_secret_question
from noetl_stream.model.messages import HideAnswer, SecretAnswer
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.protocol.subjects import ASK_HIDE, ASK_SECRET
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.answers.responder import answer_handler
from noetl_stream.settings.egress import egress_rules
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.pipeline import SecretsTool
from noetl_stream.worker.secrets.keychain import find_stored
from noetl_testkit.memory.access import MemoryAudit

KEYS = KeyRing(read_key(new_key(), "a test"))
OWN = {"mine": "worker-own-value", "both": "worker-own-value"}

READS = """
- step: start
  tool:
  - {name: read, kind: puppet, said: "{{ keychain.entry }}"}
keychain:
- {name: entry, kind: %s}
"""


class Vault:
    """The credential store, and a server that hands out what is in it and hides what the worker reads itself.

    Attributes:
        lookups: The names that were asked for.
        hidden: The names of values that were hidden.
        said: The bodies of questions to hide one.
        refusal: Why it refuses to hide any, if it does.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.credentials = MemoryCredentials(stage.clock)
        self.keeper = DirectCredentials(self.credentials, KEYS)
        self.lookups: list[str] = []
        self.hidden: list[str] = []
        self.said: list[bytes] = []
        self.refusal = ""
        self.restart()

    def restart(self) -> None:
        """Another server answers from now on."""
        offered = {"local_postgres": "offered-value"}
        self.secrets = SecretsResponder(self.credentials, MemoryAudit(), self.stage.clock, KEYS, offered)

    async def open(self) -> None:
        """Begins to answer."""
        bus = self.stage.broker.bus
        await bus.listen(f"{ASK_SECRET}.{POOL}", answer_handler(bus, self._answer))
        await bus.listen(f"{ASK_HIDE}.{POOL}", answer_handler(bus, self._hide))
        self.stage.tools["secrets"] = SecretsTool()
        self.stage.tools["http"] = HttpTool(Egress(egress_rules("loopback")))

    async def _answer(self, _names: list[str], body: bytes) -> SecretAnswer:
        question = decode_secret_question(body)
        self.lookups.append(question.name)
        return await self.secrets.answer(question, POOL)

    async def _hide(self, _names: list[str], body: bytes) -> HideAnswer | None:
        self.said.append(body)
        if self.refusal:
            return HideAnswer(refused=self.refusal)
        question = decode_hide_question(body)
        answer = await self.secrets.hide(question, POOL)
        if answer == HideAnswer():
            self.hidden.append(question.name)
        return answer

    async def shown(self, text: str, execution_id: str = EXECUTION) -> str:
        """``text`` of an execution, as a gateway shows it."""
        return await UsedSecrets(self.credentials, KEYS).hide(execution_id, text)

    async def start(self, **changes: Any) -> None:
        """A worker that asks it."""
        await self.stage.start(credentials=OWN, secrets=find_stored, **changes)

    async def run(self, steps: str, **changes: Any) -> list[TaskProcessed]:
        """What became of the tasks of these steps, by the worker that is there; they have ended when this returns."""
        before = len(self.stage.facts)
        number = len(self.stage.reports) + 1
        given: dict[str, Any] = {"command_id": f"command-{number}", "step_run_id": f"steprun-{number}", **changes}
        await self.stage.issue(self.stage.command(self.stage.plan(steps), **given))
        await self.stage.soon(lambda: any(name in ("step.done", "step.failed") for name in self.stage.names[before:]))
        return [fact for fact in self.stage.facts[before:] if isinstance(fact, TaskProcessed)]


def result_of(processed: TaskProcessed) -> Any:
    return decode_json(processed.outcome.result.value)


def failure_of(processed: TaskProcessed) -> ErrorInfo:
    assert processed.outcome.error is not None
    return processed.outcome.error


def inputs_read(vault: Vault) -> list[Any]:
    return inputs_of(vault.stage.puppet.calls, "said")

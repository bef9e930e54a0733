"""What answers all verbs of a port in one way, by what their records say."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import NotFound, Unreachable
from noetl_stream.operations.executions.redacted import Redacted
from noetl_stream.operations.executions.replica import ACTED_ON_MS, AWAY_MS, Replicated
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.access import Access, CredentialStore, GrantsRegistry
from noetl_stream.ports.operations.cluster import Cluster, Diagnosis
from noetl_stream.ports.operations.executions import AcceptedDocument, Executions
from noetl_stream.ports.operations.playbooks import Playbooks
from noetl_stream.ports.operations.reading.views import Views
from noetl_stream.ports.operations.selections import Selections
from noetl_stream.ports.operations.starters import Schedules, Triggers
from noetl_stream.ports.operations.verbs import Document, is_verb, verb, verb_of
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_stream.wiring.operations import DirectOperations

PORTS = (
    *(Executions, Playbooks, CredentialStore, Cluster, Access, Diagnosis),
    *(Views, Selections, Schedules, Triggers, GrantsRegistry),
)


def methods_of(port: type) -> dict[str, Any]:
    return {name: one for name, one in vars(port).items() if not name.startswith("_")}


@pytest.mark.parametrize("port", PORTS)
def test_every_method_of_a_port_has_a_record(port: type) -> None:
    assert [name for name, one in methods_of(port).items() if not is_verb(one)] == []


@pytest.mark.parametrize("port", PORTS)
def test_the_parameters_in_an_address_are_those_of_the_verb(port: type) -> None:
    for one in map(verb_of, methods_of(port).values()):
        named = [part[1:-1] for part in one.path.split("/") if part.startswith("{")]
        assert set(named) <= set(one.parameters), one


def test_a_verb_that_is_about_nothing_needs_a_scope() -> None:
    async def count(self: object, limit: int) -> int:
        raise NotImplementedError

    with pytest.raises(TypeError, match=r"count needs a scope"):
        verb("GET", "/count")(count)
    assert verb_of(verb("GET", "/count", scope="everyone")(count)).scope == "everyone"


class Asked:
    """Executions that note what they are asked, and answer with their name or fail."""

    def __init__(self, name: str, asked: list[str], error: Exception | None = None) -> None:
        self.name, self.asked, self.error = name, asked, error

    async def get(self, execution_id: str) -> str:
        return self._answer(f"get {execution_id}")

    async def result(self, execution_id: str) -> str:
        return self._answer(f"result {execution_id}")

    async def wait(self, execution_id: str, timeout_s: float) -> str:
        return self._answer(f"wait {execution_id}")

    async def ask(self, execution_id: str, fact: object) -> AcceptedDocument:
        self._answer(f"ask {execution_id}")
        return AcceptedDocument(execution_id)

    def _answer(self, asked: str) -> str:
        self.asked.append(f"{self.name}: {asked}")
        if self.error is not None:
            raise self.error
        return self.name


class ReplicaStage:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.clock = ManualClock(1_000_000)
        self.replica = Asked("replica", self.asked)
        self.executions: Any = Replicated(Executions, Asked("primary", self.asked), self.connected, self.clock)

    async def connected(self) -> Asked:
        return self.replica


@pytest.fixture
def stage() -> ReplicaStage:
    return ReplicaStage()


async def test_a_replica_answers_the_verbs_that_say_so(stage: ReplicaStage) -> None:
    assert (await stage.executions.get("e1"), await stage.executions.result("e1")) == ("replica", "primary")


@pytest.mark.parametrize("act", ["ask", "wait"])
async def test_an_execution_that_was_changed_or_awaited_is_read_from_the_primary_for_a_while(
    stage: ReplicaStage, act: str
) -> None:
    await getattr(stage.executions, act)("e1", 0)
    assert (await stage.executions.get("e1"), await stage.executions.get("e2")) == ("primary", "replica")
    stage.clock.advance(ACTED_ON_MS / 1000)
    assert await stage.executions.get("e1") == "replica"


async def test_the_primary_answers_for_what_the_replica_does_not_know(stage: ReplicaStage) -> None:
    stage.replica.error = NotFound("e1")
    assert await stage.executions.get("e1") == "primary"
    stage.replica.error = None
    assert await stage.executions.get("e1") == "replica"


async def test_a_replica_that_does_not_answer_is_not_asked_for_a_while(stage: ReplicaStage) -> None:
    stage.replica.error = Unreachable("away")
    assert [await stage.executions.get("e1") for _ in range(2)] == ["primary", "primary"]
    assert stage.asked == ["replica: get e1", "primary: get e1", "primary: get e1"]
    stage.replica.error = None
    stage.clock.advance(AWAY_MS / 1000)
    assert await stage.executions.get("e1") == "replica"


class Hiding:
    """Secrets that mark what they are asked to hide, by execution."""

    async def hide(self, execution_id: str, document: Any) -> Any:
        return document.hidden_of(execution_id)


class ShownDocument(Document, frozen=True):
    execution_id: str
    hidden: tuple[str, ...] = ()

    def hidden_of(self, execution_id: str) -> ShownDocument:
        return replace(self, hidden=(*self.hidden, execution_id))


class Shown:
    async def get(self, execution_id: str) -> ShownDocument:
        return ShownDocument(execution_id)

    async def rerun(self, execution_id: str, wanted: object, by: str) -> ShownDocument:
        return ShownDocument("new")

    async def ask(self, execution_id: str, fact: object) -> ShownDocument:
        return ShownDocument(execution_id)


async def test_an_answer_shows_no_secret_of_the_executions_that_are_asked_about_or_answered_with() -> None:
    executions = Redacted(Executions, Shown(), cast(UsedSecrets, Hiding()))
    answers = [
        await executions.get("old"),
        await executions.rerun("old", None, "ann"),
        await executions.ask("old", None),
    ]
    assert [one.hidden for one in answers] == [("old",), ("old", "new"), ()]


def test_operations_made_part_by_part_have_every_noun() -> None:
    assert [noun for noun in Operations.__struct_fields__ if not hasattr(DirectOperations, noun)] == []

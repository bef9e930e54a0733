"""What the doctor finds, over a server and a worker in memory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import click
import pytest
from msgspec.structs import replace
from operations_stage import BY, OperationsStage

from doctor_in_memory import doctor_ports
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.cli.main import noetl_stream as cli
from noetl_stream.engine.aggregates.triggers import StreamReading, TriggerFaults, TriggerState
from noetl_stream.errors import Unreachable
from noetl_stream.model.aggregates import TRIGGER, StreamFilter, TriggerTerms
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.json import codec
from noetl_stream.model.messages import GrantsUse, MemoryUse, RunningCommand, WorkerPresence
from noetl_stream.operations.doctor import checks
from noetl_stream.operations.doctor.doctor import DirectDiagnosis, roots_said_once
from noetl_stream.operations.doctor.findings import CAUSES, Cause
from noetl_stream.operations.doctor.readings import DoctorPorts
from noetl_stream.ports.operations.cluster import CheckDocument
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.self_reports import DatabaseFacts, NatsFacts, NatsStorage, StoreUse, StreamFacts
from noetl_stream.ports.stores.aggregates import AggregateRow
from noetl_stream.ports.stores.credentials import NewCredential
from noetl_stream.ports.stores.dead_letters import LetterBounds
from noetl_stream.ports.stores.identities import StoredToken
from noetl_stream.ports.streams.command_queue import QueuedPool
from noetl_stream.protocol import subjects
from noetl_stream.sealing.keys import KeyRing, key_ring, new_key
from noetl_testkit.memory.access import MemoryTokens
from noetl_testkit.simulation.work import playbook, work

DAY_MS = 24 * 3_600_000
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "doctor.md"
LONG = playbook("long", [{"step": "long", "tool": work("done", 600.0)}])


def ports_of(stage: OperationsStage) -> DoctorPorts:
    return doctor_ports(stage.broker, stage.store, stage.clock, MemoryTokens())


async def examined(ports: DoctorPorts) -> Mapping[str, CheckDocument]:
    return {check.check: check for check in await DirectDiagnosis(ports).examine()}


def database(stage: OperationsStage, **facts: Any) -> Any:
    """A database that says so of itself."""
    usual: dict[str, Any] = {
        "version": "18.6", "user": "noetl_gateway", "now_ms": stage.clock.now_ms(), "size_bytes": 1, "connections": 1,
        "max_connections": 100, "waits_for": "", "standbys": 0, "synchronous": 0, "certificate_ends_ms": None,
    }  # fmt: skip
    return Said(DatabaseFacts(**usual | facts))


def told(**facts: Any) -> NatsFacts:
    """A NATS that syncs every message, and what is said otherwise of it."""
    usual: dict[str, Any] = {"version": "2.15.1", "user": "gateway", "cluster": "", "sync_s": 0.0}
    return NatsFacts(**usual | facts)


class Said(NamedTuple):
    """A store as it was found: a damaged one cannot be had in memory."""

    about: DatabaseFacts | NatsFacts = told()
    used: NatsStorage = NatsStorage(0, None)
    one: StreamFacts = StreamFacts("", exists=True)
    rights: tuple[str, ...] = ()
    unsynced: int = 0
    newer: tuple[str, ...] = ()

    async def facts(self) -> Any:
        return self.about

    async def live_servers(self) -> list[Any]:
        return []

    async def excess_rights(self, role: str) -> list[str]:
        return list(self.rights)

    async def newer_migrations(self) -> list[str]:
        return list(self.newer)

    async def stream(self, name: str) -> StreamFacts:
        return replace(self.one, name=name)

    async def storage(self) -> NatsStorage:
        return self.used

    async def stored_since(self, stream: str, from_ms: int) -> int:
        return self.unsynced


async def test_a_system_that_works_has_nothing_to_mend(stage: OperationsStage) -> None:
    await stage.executions.start(Start(playbook=LONG), BY)
    await stage.clock.sleep(1)

    found = await examined(ports_of(stage))

    assert {"ok"} == {check.verdict for name, check in found.items() if name != "certificates"}
    assert not any(check.mend for check in found.values())
    assert found["partitions"].says == "32 partitions on 1 server"


class Answering(NamedTuple):
    """A bus on which servers answer this."""

    uses: tuple[MemoryUse, ...]

    async def ask_all(self, subject: str, data: bytes, wait_s: float) -> list[bytes]:
        return [codec.encode(use) for use in self.uses] if subject == subjects.ASK_MEMORY else []


async def said_of(stage: OperationsStage, check: str, *uses: Mapping[str, Any]) -> CheckDocument:
    """What a check says when a server for each of these answers it."""
    answers = tuple(MemoryUse("server", f"server-{number}", {}, **use) for number, use in enumerate(uses))
    bus = cast(Any, Answering(answers))
    return (await examined(ports_of(stage)._replace(bus=bus)))[check]


@pytest.mark.parametrize(
    ("grants", "verdict", "says"),
    [
        (("unset",), "warning", "nobody has said what playbooks may use"),
        (("everything",), "ok", "every playbook may use every credential"),
        (("restricted",), "ok", "playbooks may use what grants give them"),
        (("file", "file"), "ok", "playbooks may use what grants give them"),
        (("file", "restricted"), "warning", "some servers have a file of grants, and others do not"),
    ],
)
async def test_grants_that_nobody_has_chosen_or_some_servers_lack_are_warned_of(
    stage: OperationsStage, grants: tuple[GrantsUse, ...], verdict: str, says: str
) -> None:
    found = await said_of(stage, "grants", *({"grants": one} for one in grants))

    assert (found.verdict, says in found.says) == (verdict, True)


@pytest.mark.parametrize(
    ("most", "stored", "verdict", "says"),
    [
        (0, {}, "ok", "namespaces have no bound in the object store"),
        (1000, {}, "ok", "no namespace has 80% of the 1e+03 B that it may have in the object store"),
        (1000, {"team_a": 810, "team_b": 900}, "warning", "for 2 namespaces: team_b 90%, team_a 81%"),
        (1000, {"team_a": 990}, "wrong", "for 1 namespace: team_a 99%"),
    ],
)
async def test_a_namespace_with_little_room_in_the_object_store_is_named(
    stage: OperationsStage, most: int, stored: dict[str, int], verdict: str, says: str
) -> None:
    found = await said_of(stage, "namespaces", {"stored": stored, "max_stored_bytes": most})

    assert found.verdict == verdict
    assert found.says.endswith(says)


async def test_every_check_has_its_row_in_the_reference(stage: OperationsStage) -> None:
    rows = [line.split("|")[1].strip(" `") for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert rows == list(await examined(ports_of(stage)))


def test_the_reference_has_the_table_of_causes() -> None:
    lines = [line for line in PAGE.read_text().partition("## Causes")[2].splitlines() if line.startswith("| ")]

    assert [re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in lines[2:]] == [
        [one.says, f"`{one.symptom}`".replace("|", r"\|"), one.before, f"`{one.command}`"] for one in CAUSES
    ]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.says)
def test_commands_that_mend_a_cause_can_be_typed(cause: Cause) -> None:
    words = [word for word in shlex.split(cause.command) if "=" not in word or word.startswith("-")]

    assert words[0] in ("noetl-stream", "nats-server", "psql", "pip")
    if words[0] == "noetl-stream":
        command: Any = cli
        for word in words[1:]:
            command = command.get_command(click.Context(command), word) if not word.startswith("-") else command
            assert command is not None, cause.command


GPU: Mapping[str, Any] = {"pool_labels": {"gpu": {"accelerator": "gpu"}}}


@pytest.mark.parametrize(
    ("uses", "verdict", "says"),
    [
        (({}, {}), "ok", "no pool has labels"),
        ((GPU, GPU), "ok", "1 pool with labels, alike at all servers; without a worker now: gpu"),
        (
            (GPU, {}),
            "wrong",
            "servers differ in the labels of 1 pool: gpu; gpu has `accelerator=gpu` at 1 server, `none` at 1 server",
        ),
    ],
)
async def test_servers_with_other_labels_of_pools_than_the_rest_are_reported(
    stage: OperationsStage, uses: tuple[Mapping[str, Any], ...], verdict: str, says: str
) -> None:
    found = await said_of(stage, "placement", *uses)
    assert (found.verdict, found.says) == (verdict, says)


async def test_results_that_wait_are_wrong_with_what_makes_room(stage: OperationsStage) -> None:
    full = "NATS refused an object: insufficient resources (error 10023)"
    found = await said_of(stage, "results", {"unstored": [full]})

    assert (found.verdict, found.says) == ("wrong", f"1 server cannot store what is decided: {full}")
    assert found.mend == "raise max_file_store in its file, then: nats-server --signal reload"

    held = RunningCommand("execution-1", "command-1", "load", waits_for=f"its result cannot be stored: {full}")
    await add_worker(stage, "full", "full", running=[held])

    found = (await examined(ports_of(stage)))["results"]

    assert found.says == f"1 result not stored, kept by 1 worker: its result cannot be stored: {full}"
    assert (found.verdict, found.mend[:21]) == ("wrong", "raise max_file_store ")


async def test_a_system_without_a_worker_is_a_warning_with_what_starts_one() -> None:
    found = (await examined(ports_of(OperationsStage())))["pools"]

    assert (found.verdict, found.mend) == ("warning", "noetl-stream worker")


async def test_commands_without_a_worker_are_found_with_the_command_that_starts_one(stage: OperationsStage) -> None:
    source = playbook("gpu", [{"step": "far", "tool": work("done", 1.0), "spec": {"pool": "gpu"}}])
    await stage.executions.start(Start(playbook=source), BY)
    await stage.clock.sleep(1)

    found = (await examined(ports_of(stage)))["pools"]

    assert (found.verdict, found.mend) == ("wrong", "noetl-stream worker --pool gpu")
    assert "1 in gpu" in found.says


async def test_a_queue_that_nats_cannot_read_is_named_with_what_to_do(stage: OperationsStage) -> None:
    async def pools() -> list[QueuedPool]:
        return [QueuedPool("gpu", 0, 0, 0, unreadable="consumer pool-gpu: decoding error")]

    stage.broker.command_queue.pools = pools  # type: ignore[method-assign]
    found = (await examined(ports_of(stage)))["pools"]
    assert found.verdict == "wrong"
    assert found.says == "NATS gives out no commands of pool gpu: consumer pool-gpu: decoding error"
    assert "streams/COMMANDS/obs/<consumer>" in str(found.mend)


async def test_a_worker_that_cannot_begin_tasks_is_named_and_wrong_where_commands_wait_for_it(
    stage: OperationsStage,
) -> None:
    unfit = WorkerPresence("ill", "gpu", 1, 0, stage.clock.now_ms(), [], "1", unfit="no space left")

    async def answer(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, codec.encode(unfit))

    await stage.broker.bus.listen(f"{subjects.ASK_WORKERS}.gpu", answer)
    await stage.broker.command_queue.add_pool("gpu")
    found = (await examined(ports_of(stage)))["pools"]
    assert (found.verdict, found.says) == ("warning", "worker ill takes no commands: no space left")

    source = playbook("gpu", [{"step": "far", "tool": work("done", 1.0), "spec": {"pool": "gpu"}}])
    await stage.executions.start(Start(playbook=source), BY)
    await stage.clock.sleep(1)
    assert (await examined(ports_of(stage)))["pools"].verdict == "wrong"


async def add_worker(stage: OperationsStage, name: str, confinement: str, network: str = "", **more: Any) -> None:
    """Adds a worker that says this of its tasks."""
    since_ms = stage.clock.now_ms()
    it = WorkerPresence(name, "default", 1, 0, since_ms, [], "1", confinement=confinement, network=network, **more)

    async def answer(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, codec.encode(it))

    await stage.broker.bus.listen(f"{subjects.ASK_WORKERS}.default", answer)
    await stage.broker.command_queue.add_pool("default")
    await stage.clock.sleep(1)


async def test_the_network_of_programs_of_tasks_is_shown(stage: OperationsStage) -> None:
    await add_worker(stage, "strong", "full", "proxy")

    found = (await examined(ports_of(stage)))["confinement"]

    assert (found.verdict, found.says) == ("ok", "tasks are fully confined; their network: proxy")
    assert [worker.network for worker in await stage.cluster.workers() if worker.name == "strong"] == ["proxy"]


async def test_a_worker_that_cannot_confine_its_tasks_is_named_with_its_level(stage: OperationsStage) -> None:
    await add_worker(stage, "weak", "landlock")

    found = (await examined(ports_of(stage)))["confinement"]

    assert (found.verdict, found.says) == ("warning", "tasks of 1 worker are not fully confined: weak (landlock)")
    assert [worker.confinement for worker in await stage.cluster.workers() if worker.name == "weak"] == ["landlock"]


async def test_without_a_server_its_work_is_wrong_or_where_one_is_started_on_demand_skipped() -> None:
    stage = OperationsStage()
    await stage.broker.event_log.publish_request("execution-1", "one", b"{}")
    names = ("servers", "partitions", "fold", "pools")

    found = await examined(ports_of(stage))
    assert [found[name].verdict for name in names] == ["wrong", "wrong", "wrong", "warning"]
    assert f"{PARTITIONS} partitions of {PARTITIONS} without a server" in found["partitions"].says

    found = await examined(ports_of(stage)._replace(on_demand=True))
    assert [found[name].verdict for name in names] == ["skipped"] * 4


async def test_several_versions_are_a_warning(stage: OperationsStage) -> None:
    await stage.store.appear("old", "0.3.0", 2, 60)

    found = await examined(ports_of(stage))

    assert found["versions"].verdict == "warning" and "0.3.0: 1 server;" in found["versions"].says
    assert "did not answer: old" in found["servers"].says


async def test_unequal_shares_are_a_warning(stage: OperationsStage) -> None:
    await stage.store.appear("idle", "0.4.0", 2, 60)

    found = (await examined(ports_of(stage)))["partitions"]

    assert found.verdict == "warning" and "32 at the most, 0 at the least" in found.says


async def test_undeliverable_messages_are_a_warning(stage: OperationsStage) -> None:
    await stage.broker.event_log.publish_request("execution-1", "bad", b"bad")
    await stage.clock.sleep(1)

    found = (await examined(ports_of(stage)))["dead-letters"]

    assert (found.verdict, found.says) == ("warning", "1 message could not be delivered")


async def test_dead_letters_that_push_each_other_out_are_wrong(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LetterBounds", partial(LetterBounds, letters=1))
    await stage.broker.event_log.publish_request("execution-1", "bad", b"bad")
    await stage.clock.sleep(1)

    found = (await examined(ports_of(stage)))["dead-letters"]

    assert (found.verdict, found.says) == (
        "wrong", "1 dead letter with 3 bytes: 100% of what is kept; the oldest go"
    )  # fmt: skip


def with_trigger(stage: OperationsStage, **state: Any) -> None:
    """Stores a trigger in this state."""
    path = "etl/sales_alert"
    terms = TriggerTerms(playbook="etl/report", nats=StreamFilter(stream="SALES"))
    about = TriggerState(path=path, terms=terms, by=BY, revision=1, digest="d", created_ms=1, registered_ms=1, **state)
    row = AggregateRow(id="t", partition=0, kind=TRIGGER, key=path, position=1, state=codec.encode(about), updated_ms=1)
    stage.store.tables.aggregates.rows["t"] = row


async def test_a_trigger_that_could_not_handle_an_event_of_the_last_day_is_named_with_the_reason(
    stage: OperationsStage,
) -> None:
    faults = TriggerFaults(12, 40, stage.clock.now_ms() - DAY_MS // 2, "cannot be evaluated: x is undefined")
    with_trigger(stage, faults=faults)
    found = (await examined(ports_of(stage)))["triggers"]
    assert (found.verdict, found.says) == (
        "wrong",
        "1 trigger with faults in the last day: etl/sales_alert (12); "
        "event 40 of etl/sales_alert: cannot be evaluated: x is undefined",
    )
    assert found.mend.startswith("noetl-stream trigger event etl/sales_alert 40")

    with_trigger(stage, faults=replace(faults, at_ms=stage.clock.now_ms() - DAY_MS))
    assert (await examined(ports_of(stage)))["triggers"].verdict == "ok"


async def test_a_trigger_whose_stream_cannot_be_read_is_wrong(stage: OperationsStage) -> None:
    with_trigger(stage, reading=StreamReading(trouble="stream SALES does not exist"))
    found = (await examined(ports_of(stage)))["triggers"]
    assert found.verdict == "wrong" and "etl/sales_alert: stream SALES does not exist" in found.says


@pytest.mark.parametrize(("ahead_ms", "verdict"), [(900, "ok"), (5_000, "warning"), (-60_000, "wrong")])
async def test_a_clock_that_differs_is_named(stage: OperationsStage, ahead_ms: int, verdict: str) -> None:
    ports = ports_of(stage)._replace(database=database(stage, now_ms=stage.clock.now_ms() + ahead_ms))

    found = (await examined(ports))["clocks"]

    assert verdict == found.verdict
    assert verdict == "ok" or f"Postgres {ahead_ms / 1000:+.1f} s" in found.says


async def test_a_server_whose_clock_differs_is_named(stage: OperationsStage) -> None:
    ahead = stage.clock.now_ms() + 5_000

    async def answer(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, b'{"role": "server", "process": "fast", "held": {}, "at_ms": %d}' % ahead)

    await stage.broker.bus.listen("noetl.ask.memory", answer)

    found = (await examined(ports_of(stage)))["clocks"]

    assert found.verdict == "warning" and "fast +" in found.says


@pytest.mark.parametrize(
    ("facts", "check", "verdict", "says"),
    [
        ({"connections": 85}, "postgres", "warning", "85 of 100 connections"),
        ({"waits_for": "standby"}, "durability", "wrong", "none is connected"),
        ({"waits_for": "b", "standbys": 1}, "durability", "wrong", "none of 1 is synchronous"),
        ({"waits_for": "b", "standbys": 1, "synchronous": None}, "durability", "ok", "may not see its state"),
        ({"waits_for": "b", "standbys": 1, "synchronous": 1}, "durability", "ok", "commits wait for b"),
    ],
)
async def test_postgres_is_judged_by_what_it_says(
    stage: OperationsStage, facts: dict[str, Any], check: str, verdict: str, says: str
) -> None:
    found = (await examined(ports_of(stage)._replace(database=database(stage, **facts))))[check]

    assert verdict == found.verdict and says in found.says


@pytest.mark.parametrize(
    ("said", "check", "verdict", "says"),
    [
        (Said(one=StreamFacts("")), "streams", "wrong", "4 streams missing"),
        (Said(one=StreamFacts("", exists=True, differs=["discard"])), "streams", "wrong", "EVENTS (discard)"),
        (Said(one=StreamFacts("", exists=True, away=["n2"])), "replicas", "wrong", "EVENTS on n2"),
        (Said(NatsFacts("2", "gateway", "main")), "replicas", "warning", "one copy only"),
        (Said(told(sync_s=None)), "power-loss", "warning", "nobody has told how much NATS would lose"),
        (Said(told(sync_s=10.0), unsynced=7), "power-loss", "ok", "its last 10 s, with 7 messages of EVENTS"),
        (Said(told(sync_s=120.0)), "power-loss", "warning", "that is long"),
        (Said(one=StreamFacts("", True, acknowledges_early=True)), "power-loss", "warning", "EVENTS acknowledges"),
        (
            Said(told(keeps_copies_apart=False), one=StreamFacts("", True, replicas=3)),
            "power-loss",
            "warning",
            "all copies may be in one zone",
        ),
        (Said(told(version="2.12.2", cluster="main")), "power-loss", "warning", "removing a peer may lose"),
        (Said(told(version="2.12.3", cluster="main")), "power-loss", "ok", "NATS would lose nothing"),
        (Said(used=NatsStorage(85, 100)), "storage", "warning", "all streams 85%"),
        (Said(used=NatsStorage(1, None, [StoreUse("nats-server n1", 96, 100)])), "storage", "wrong", "n1 96%"),
        (
            Said(used=NatsStorage(1, 9, failures=["nats-server n1 says: write error"])),
            "storage",
            "wrong",
            "write error",
        ),
        (Said(one=StreamFacts("", True, (), 99, 100)), "storage", "wrong", "EVENTS 99%"),
    ],
)
async def test_nats_is_judged_by_what_it_says(
    stage: OperationsStage, said: Said, check: str, verdict: str, says: str
) -> None:
    found = (await examined(ports_of(stage)._replace(nats=said)))[check]

    assert verdict == found.verdict and says in found.says


class Watched(NamedTuple):
    """A watch that has seen this."""

    seen: tuple[StoreUse, ...]

    async def watch(self) -> None:
        raise NotImplementedError

    def uses(self) -> tuple[StoreUse, ...]:
        return self.seen


async def test_a_store_that_is_full_soon_is_a_warning_long_before_it_is(stage: OperationsStage) -> None:
    seen = Watched((StoreUse("all streams", 40, 100, 2 * 3_600.0), StoreUse("Postgres", 1, 100, 5 * 3_600.0)))
    ports = ports_of(stage)._replace(nats=Said(used=NatsStorage(40, 100)), watch=seen)

    found = await examined(ports)

    assert (found["storage"].verdict, found["storage"].says) == (
        "warning", "little room is left: all streams 40%, full in 2 h"
    )  # fmt: skip
    assert found["storage"].mend.endswith(": noetl-stream storage") and found["postgres"].verdict == "ok"


@pytest.mark.parametrize(("size_bytes", "verdict"), [(79, "ok"), (80, "warning"), (95, "wrong")])
async def test_postgres_is_judged_by_what_it_may_take(stage: OperationsStage, size_bytes: int, verdict: str) -> None:
    ports = ports_of(stage)._replace(database=database(stage, size_bytes=size_bytes), postgres_max_bytes=100)

    assert (await examined(ports))["postgres"].verdict == verdict


async def test_stored_bytes_are_listed_with_their_known_bounds(stage: OperationsStage) -> None:
    async def bounds(used: NatsStorage) -> dict[str, int | None]:
        ports = ports_of(stage)._replace(nats=Said(used=used), postgres_max_bytes=7)
        return {one.store: one.max_bytes for one in await DirectDiagnosis(ports).storage()}

    servers = [StoreUse("nats-server n1", 1, 9), StoreUse("nats-server n2", 1, 5)]
    found = await bounds(NatsStorage(1, 3, servers))
    assert (found["account"], found["database"]) == (3, 7)
    assert (await bounds(NatsStorage(1, None, servers)))["account"] == 5
    assert (await bounds(NatsStorage(1, None)))["account"] is None


async def test_a_certificate_that_ends_soon_is_a_warning(stage: OperationsStage) -> None:
    ends_ms = stage.clock.now_ms() + 10 * DAY_MS + 60_000
    ports = ports_of(stage)._replace(database=database(stage, certificate_ends_ms=ends_ms))

    found = (await examined(ports))["certificates"]

    assert (found.verdict, found.says) == ("warning", "the certificate of Postgres ends in 10 days")


async def test_credentials_under_old_and_unknown_keys_are_found(stage: OperationsStage) -> None:
    old, new, none = new_key(), new_key(), new_key()

    async def judged(*keys: str) -> CheckDocument:
        credentials, ring = MemoryCredentials(stage.clock), key_ring(keys, "a key")
        under = key_ring([old], "a key")
        assert isinstance(under, KeyRing)
        await credentials.put(NewCredential("one", "http", "", (), 1, under.current.id, b"sealed"))
        return (await examined(ports_of(stage)._replace(credentials=credentials, keys=ring)))["keys"]

    assert (await judged(old)).verdict == "ok"
    assert ((found := await judged(new, old)).verdict, found.mend) == ("warning", "noetl-stream credential rotate")
    assert (await judged(none)).verdict == "wrong"
    assert (await judged()).verdict == "skipped"


async def test_a_token_that_ends_soon_is_a_warning(stage: OperationsStage) -> None:
    tokens, now_ms = MemoryTokens(), stage.clock.now_ms()
    await tokens.add(StoredToken("id", "deploy", "admin", (), b"", now_ms, BY, expires_ms=now_ms + 3 * DAY_MS))

    found = (await examined(ports_of(stage)._replace(tokens=tokens)))["tokens"]

    assert (found.verdict, found.says) == ("warning", "within 14 days end 1 token: deploy")


async def test_rights_beyond_those_of_the_role_are_a_warning(stage: OperationsStage) -> None:
    about = database(stage)._replace(rights=("is a superuser",))

    found = (await examined(ports_of(stage)._replace(database=about)))["permissions"]

    assert found.verdict == "warning" and "is a superuser" in found.says


async def test_without_postgres_what_it_would_say_is_skipped_and_the_rest_is_not(stage: OperationsStage) -> None:
    class Away:
        def __getattr__(self, _name: str) -> Any:
            async def refuse(*_words: object) -> None:
                raise Unreachable("cannot reach Postgres", hint="start it")

            return refuse

    away: Any = Away()
    ports = ports_of(stage)._replace(database=away, store=away, tokens=away, credentials=away, dead_letters=away)

    found = await examined(ports)

    assert (found["postgres"].verdict, found["postgres"].says) == (
        "wrong", "Postgres does not answer: cannot reach Postgres"
    )  # fmt: skip
    assert "ok" == found["nats"].verdict == found["streams"].verdict == found["pools"].verdict
    assert "skipped" == found["schema"].verdict == found["stuck"].verdict == found["clocks"].verdict


@pytest.mark.parametrize(
    "says",
    [
        "refused",
        "Postgres at db refuses: the database does not exist",
        "reading the tokens took longer than 10 s",
    ],
)
def test_a_check_skipped_for_a_broken_store_says_only_that(says: str) -> None:
    root = CheckDocument("postgres", "wrong", "cannot reach Postgres at db: refused", "start it")
    skipped, other = CheckDocument("tokens", "skipped", says, ""), CheckDocument("keys", "skipped", "no key", "")
    assert roots_said_once([root, skipped, other]) == [
        root,
        CheckDocument("tokens", "skipped", "it needs `postgres`, which is wrong"),
        other,
    ]

"""What a server says to a worker that asks on behalf of a command."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from server_stage import KINDS, ONE_STEP, Stage

from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.errors import Unreachable
from noetl_stream.model.events import StepClaimed
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import PlaybookQuestion, ResultQuestion, ShownCommand, StepCommand
from noetl_stream.ports.stores.catalog import CatalogEntry
from noetl_stream.protocol.subjects import ASK_CATALOG, ASK_PLAYBOOK, ASK_RESULT, ask_request
from noetl_stream.server.answers.responder import DELETED_AT_ONCE, delete_kept
from noetl_stream.worker.child_playbooks import PinnedPlaybook, PlanClient, PlanUnknown, PlaybookUnknown, pin_playbook
from noetl_testkit.conformance.catalog import registered
from noetl_testkit.keys import CAPABILITIES
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import playbook, work

NESTED = "etl/airports.daily"
EXECUTION = "execution-1"


async def taken(stage: Stage, source: str = ONE_STEP) -> StepCommand:
    """The command of an execution that runs here."""
    await stage.request(EXECUTION, "request-1", source)
    command, _ = await (await stage.manual_worker()).take()
    return command


async def answer_to(stage: Stage, command: StepCommand, subject: str, question: Any) -> Any:
    """What the owner of the execution answers."""
    return codec.decode_json(await stage.asker(command).ask(subject, question))


async def test_a_worker_gets_the_playbook_of_its_command(stage: Stage) -> None:
    await stage.server()
    command = await taken(stage)
    plan = await PlanClient(KINDS).load(command.digest, stage.asker(command))
    assert plan.digest == digest_of(ONE_STEP)


class SlowReading(FaultInjector):
    """Readers of EVENTS take a second to open."""

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "log.open_reader":
            await host.clock.sleep(1.0)


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_command_unknown_to_postgres_is_not_refused_until_stored_messages_are_folded(
    stage: Stage, recorded: bool
) -> None:
    _, host, _ = stage.start_server()
    await stage.until(lambda: any(row.owner for row in stage.tables.partitions))
    older = stage.store.real.dump()
    command = await taken(stage)
    host.kill()
    if not recorded:
        stage.broker.event_log.lose_tail(1)
    stage.store.real.restore(older)
    stage.expire(*range(32))
    stage.start_server(stage.host("server", SlowReading()))
    await stage.until(lambda: any(row.owner not in (None, host.name) for row in stage.tables.partitions))
    assert EXECUTION not in stage.tables.executions
    answer = await answer_to(stage, command, ASK_PLAYBOOK, PlaybookQuestion(ShownCommand.from_command(command)))
    assert answer["known"]


async def test_the_owner_of_the_execution_answers(stage: Stage) -> None:
    first = await stage.server()
    await stage.server_beside(first)
    command = await taken(stage)
    heard: list[bytes] = []

    async def hear(_subject: str, body: bytes, _reply: str) -> None:
        heard.append(body)

    await stage.broker.bus.listen("reply", hear)
    question = codec.encode(PlaybookQuestion(ShownCommand.from_command(command)))
    stage.broker.bus.deliver(f"{ASK_PLAYBOOK}.{command.pool}", question, "reply")
    await stage.pass_time(1)
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"capability": ""}, "was not given to a worker of pool default"),
        ({"capability": "default.server-key-1.AAAA"}, "was not given to a worker of pool default"),
        ({"execution_id": "execution-2"}, "was not given to a worker of pool default"),
        ({"step_run_id": "another"}, "was not given to a worker of pool default"),
        ({"issue": 2}, "was not given to a worker of pool default"),
        ({"pool": "gpu"}, "was not given to a worker of pool gpu"),
    ],
)
async def test_only_the_worker_that_was_given_a_command_gets_an_answer(
    stage: Stage, changes: dict[str, Any], reason: str
) -> None:
    await stage.server()
    command = replace(await taken(stage), **changes)
    answer = await answer_to(stage, command, ASK_PLAYBOOK, PlaybookQuestion(ShownCommand.from_command(command)))
    assert reason in answer["refused"]


async def test_a_command_that_has_ended_allows_nothing_more(stage: Stage) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    await worker.finish(command, worker.run_of(command, delivery))
    await stage.ended(EXECUTION)
    with pytest.raises(PlanUnknown, match="has ended"):
        await PlanClient(KINDS).load(command.digest, stage.asker(command))


async def test_a_command_that_another_worker_has_allows_nothing_more(stage: Stage) -> None:
    server = await stage.server(reconcile_s=0.5)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    worker = await stage.manual_worker()
    first, delivery = await worker.take()
    delivery.ack()  # nobody reports: the command is issued again
    second, delivery = await worker.take()
    await worker.report(second, worker.run_of(second, delivery), 0, 0, StepClaimed())
    await stage.until(lambda: (found := server.executions.assignment(EXECUTION, second.command_id)) and found.run)
    answer = await answer_to(stage, first, ASK_PLAYBOOK, PlaybookQuestion(ShownCommand.from_command(first)))
    assert "another worker has" in answer["refused"]
    assert (await answer_to(stage, second, ASK_PLAYBOOK, PlaybookQuestion(ShownCommand.from_command(second))))["known"]


async def test_a_command_does_not_read_results_of_executions_it_does_not_refer_to(stage: Stage) -> None:
    await stage.server()
    command = await taken(stage)
    question = ResultQuestion(ShownCommand.from_command(command), "execution-2.steprun-1")
    answer = await answer_to(stage, command, ASK_RESULT, question)
    assert "reads no result execution-2.steprun-1" in answer["refused"]


async def test_a_worker_gets_the_latest_or_the_version_it_names(stage: Stage) -> None:
    await stage.server()
    first = await registered(stage.catalog, "a", NESTED, "1.0")
    second = await registered(stage.catalog, "b", NESTED)
    asker = stage.asker(await taken(stage))
    pins = [CAPABILITIES.pin(EXECUTION, entry.digest, NESTED) for entry in (first, second)]
    assert await pin_playbook(asker, NESTED, None) == PinnedPlaybook(second.digest, NESTED, "2", pins[1])
    assert await pin_playbook(asker, f"/{NESTED}", "1.0") == PinnedPlaybook(first.digest, NESTED, "1.0", pins[0])


@pytest.mark.parametrize(
    ("path", "version", "reason"),
    [
        ("etl/airport.daily", None, f"no playbook etl/airport.daily in the catalog (did you mean `{NESTED}`?)"),
        (NESTED, "9", f"{NESTED} has no version 9 (it has `3`, `2`, `1.0`)"),
        (NESTED, "1.0@2", "are not a playbook address"),
        (f"{NESTED}@1.0", None, "are not a playbook address"),
        ("", None, "are not a playbook address"),
        ("a b", None, "use PATH[@VERSION]"),
    ],
)
async def test_an_unknown_version_is_reported_with_the_known_ones(
    stage: Stage, path: str, version: str | None, reason: str
) -> None:
    await stage.server()
    for text, given in (("a", "1.0"), ("b", None), ("c", None)):
        await registered(stage.catalog, text, NESTED, given)
    asker = stage.asker(await taken(stage))
    with pytest.raises(PlaybookUnknown) as caught:
        await pin_playbook(asker, path, version)
    assert reason in caught.value.message


@pytest.mark.parametrize("question", [b"null", b"[]", b"{}", b'{"command":1}', b"\xff"])
async def test_a_question_of_another_shape_is_refused_in_words(stage: Stage, question: bytes) -> None:
    await stage.server()
    body = await stage.broker.bus.ask(f"{ASK_CATALOG}.default", question, 1)
    assert body is not None and "cannot read this message" in codec.decode_json(body)["refused"]


class Away(MemoryCatalog):
    """Its database does not answer the first questions."""

    failures = 3

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        if self.failures:
            self.failures -= 1
            raise Unreachable("cannot reach Postgres")
        return await super().resolve(path, version)


async def test_a_worker_asks_until_some_server_reaches_its_database(stage: Stage) -> None:
    stage.catalog = Away(stage.store.real)
    entry = await registered(stage.catalog, "a", NESTED)
    await stage.server()
    pinned = await pin_playbook(stage.asker(await taken(stage)), NESTED, None)
    assert pinned.digest == entry.digest
    assert stage.catalog.failures == 0


async def test_a_registered_playbook_is_found_by_its_digest(stage: Stage) -> None:
    server = await stage.server()
    entry = await registered(stage.catalog, "a: 1", NESTED)
    known = await server.plans.load(entry.digest)
    assert known.row is not None
    assert known.row.source == "a: 1"


async def test_a_worker_gets_only_the_schemas_that_its_execution_names(stage: Stage) -> None:
    await stage.server()
    schema = "apiVersion: noetl.io/v2\nkind: Schema\nmetadata: { name: a, path: schemas/a }\nspec: {}\n"
    named = await registered(stage.catalog, schema, "schemas/a", kind="Schema")
    other = await registered(stage.catalog, schema + "# other\n", "schemas/b", kind="Schema")
    spec = {"result": {"schema": {"path": "schemas/a"}}}
    command = await taken(stage, playbook("typed", [{"step": "start", "tool": {**work(1), "spec": spec}}]))
    assert command.schemas == {"schemas/a": named.digest}
    shown = ShownCommand.from_command(command)
    answer = await answer_to(stage, command, ASK_PLAYBOOK, PlaybookQuestion(shown, named.digest))
    assert answer["source"] == schema
    refused = await answer_to(stage, command, ASK_PLAYBOOK, PlaybookQuestion(shown, other.digest))
    assert "names no schema" in refused["refused"]


async def test_a_question_that_waits_for_its_store_delays_no_other(stage: Stage) -> None:
    await stage.server()
    waiting, asked = asyncio.Event(), 0
    found = stage.store.real.request

    async def request(execution_id: str, request_id: str) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            await waiting.wait()
        return await found(execution_id, request_id)

    stage.store.real.request = request  # type: ignore[method-assign]
    bus = stage.broker.bus
    first = asyncio.create_task(bus.ask(ask_request(EXECUTION, "one"), b"", 60.0))
    await stage.until(lambda: asked == 1)
    assert await bus.ask(ask_request(EXECUTION, "two"), b"", 60.0) is not None
    assert not first.done()
    waiting.set()
    assert await first is not None


async def test_some_objects_of_an_execution_are_deleted_at_the_same_time(stage: Stage) -> None:
    keys = [f"{EXECUTION}/command/1.1.n/{number}" for number in range(100)]
    blobs, deleting, deleted = stage.broker.blobs, asyncio.Event(), []
    for key in keys:
        await blobs.put(key, b"stored")
    delete = blobs.delete

    async def delete_later(key: str) -> bool:
        deleted.append(key)
        await deleting.wait()
        return await delete(key)

    blobs.delete = delete_later  # type: ignore[method-assign]
    deletion = asyncio.create_task(delete_kept(blobs, stage.broker.task_logs, keys))
    await stage.until(lambda: len(deleted) == DELETED_AT_ONCE)
    deleting.set()
    await deletion
    assert deleted == keys
    assert not any([await delete(key) for key in keys])

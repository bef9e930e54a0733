"""What leaves an execution shows none of its secrets: search terms, events of ends, called executions, reruns
(LANGUAGE §11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server_stage import ONE_STEP, Stage

from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.model.aggregates import EmittedEvents, EndedExecutions, TriggerRegistered, TriggerTerms
from noetl_stream.model.events import StepFailed, StepStarted
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.search_terms import word_terms
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.executions.submit import ask_aggregate
from noetl_stream.ports.stores.credentials import SealedValue
from noetl_stream.ports.stores.store import InboxRow
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.ticks.watching import READ_EVERY_S
from noetl_testkit.memory.access import MemoryAudit
from noetl_testkit.memory.observation import MemoryTracing
from noetl_testkit.simulation.work import CALLED, CALLED_PATH, playbook

KEYS = KeyRing(read_key(new_key(), "a test"))
SECRET = "hunter2-mango"
ERROR = ErrorInfo("exception", f"the key x{SECRET}x ({SECRET.encode().hex()}) of mango was refused")


async def failed(
    stage: Stage, credentials: MemoryCredentials, execution_id: str, *, given: bool, text: str = ONE_STEP
) -> set[str]:
    """The search terms of an execution that fails with the secret in its error."""
    await stage.request(execution_id, f"request-{execution_id}", text)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    if given:
        await record_use(credentials, execution_id, "pg")
    run = worker.run_of(command, delivery)
    await worker.report(command, run, 0, 0, StepStarted("w"), StepFailed(command.step_run_id, ERROR))
    delivery.ack()
    await stage.ended(execution_id)
    return {term for term, of in stage.tables.terms if of == execution_id}


async def test_words_that_an_error_hides_are_not_searchable(stage: Stage) -> None:
    credentials = MemoryCredentials(stage.clock)
    await DirectCredentials(credentials, KEYS).put("pg", SECRET, "ann")
    stage.secrets = SecretsResponder(credentials, MemoryAudit(), stage.clock, KEYS)
    await stage.server()
    every = word_terms(f"{ERROR.kind} {ERROR.message}")
    assert every <= await failed(stage, credentials, "a", given=False)
    found = await failed(stage, credentials, "b", given=True)
    assert word_terms("the key of mango was refused") <= found, "mango is shown alone, too"
    assert found.isdisjoint(word_terms(f"x{SECRET}x {SECRET.encode().hex()}"))


async def test_a_trigger_gets_an_end_without_hidden_values(stage: Stage) -> None:
    credentials = MemoryCredentials(stage.clock)
    await DirectCredentials(credentials, KEYS).put("pg", SECRET, "ann")
    stage.secrets = SecretsResponder(credentials, MemoryAudit(), stage.clock, KEYS)
    told: list[InboxRow] = []
    stage.store.after_commit = lambda tick: told.extend(row for row in tick.inbox if b"execution_ended" in row.body)
    await stage.server()
    terms = TriggerTerms(playbook=await stage.register(ONE_STEP), execution=EndedExecutions(status=("failed",)))
    trigger = TriggerRegistered("register", "ops/failed", terms=terms, revision=1)
    await ask_aggregate(stage.requests, stage.broker.bus, stage.clock, "starter", trigger)
    await stage.pass_time(2 * READ_EVERY_S)
    await failed(stage, credentials, "a", given=True)
    [row] = told
    assert b"of mango was refused" in row.body
    assert SECRET.encode() not in row.body and SECRET.encode().hex().encode() not in row.body


async def test_a_trigger_gets_an_event_without_hidden_values(stage: Stage) -> None:
    credentials = MemoryCredentials(stage.clock)
    await DirectCredentials(credentials, KEYS).put("pg", SECRET, "ann")
    stage.secrets = SecretsResponder(credentials, MemoryAudit(), stage.clock, KEYS)
    told: list[InboxRow] = []
    stage.store.after_commit = lambda tick: told.extend(row for row in tick.inbox if b"event_emitted" in row.body)
    await stage.server()
    terms = TriggerTerms(playbook=await stage.register(ONE_STEP), event=EmittedEvents(name="gone_wrong"))
    trigger = TriggerRegistered("register", "ops/events", terms=terms, revision=1)
    await ask_aggregate(stage.requests, stage.broker.bus, stage.clock, "starter", trigger)
    await stage.pass_time(2 * READ_EVERY_S)
    event = {"name": "gone_wrong", "on": ["failed"], "data": {"why": "{{ event.error.message }}"}}
    await failed(stage, credentials, "a", given=True, text=emitting(event))
    [row] = told
    assert b"of mango was refused" in row.body
    assert SECRET.encode() not in row.body and SECRET.encode().hex().encode() not in row.body


def emitting(event: dict[str, Any]) -> str:
    """The playbook of one step, which emits this event."""
    step = {"step": "start", "tool": {"kind": "noop"}, "spec": {"policy": {"emit": {"events": [event]}}}}
    return playbook("one", [step])


async def test_no_attribute_of_a_span_shows_what_is_hidden(stage: Stage) -> None:
    credentials = MemoryCredentials(stage.clock)
    await DirectCredentials(credentials, KEYS).put("pg", SECRET, "ann")
    stage.secrets = SecretsResponder(credentials, MemoryAudit(), stage.clock, KEYS)
    stage.tracing = tracing = MemoryTracing()
    await stage.server()
    policy = {"tracing": {"attributes": {"shop.key": "{{ workload.key }}"}}}
    step = {"step": "start", "tool": {"kind": "noop"}, "spec": {"policy": policy}}
    spec = {"spec": {"policy": policy}}
    await failed(
        stage,
        credentials,
        "a",
        given=True,
        text=playbook("one", [step], workload={"key": f"x{SECRET}x"}, executor=spec),
    )
    await stage.until(lambda: any(span.name.startswith("execution") for span in tracing.spans))
    named = [str(span.attributes["shop.key"]) for span in tracing.spans if "shop.key" in span.attributes]
    assert len(named) == 2 and all(value.startswith("x") and SECRET not in value for value in named)


async def test_a_called_execution_and_its_caller_hide_what_either_was_given(stage: Stage) -> None:
    credentials = MemoryCredentials(stage.clock)
    stage.secrets = SecretsResponder(credentials, MemoryAudit(), stage.clock, KEYS)
    for name in ("of_caller", "of_called"):
        await DirectCredentials(credentials, KEYS).put(name, f"{SECRET} {name}", "ann")
    await stage.server()
    stage.start_worker()
    await stage.register(CALLED)
    await record_use(credentials, "caller", "of_caller")
    call = {"name": "call", "kind": "playbook", "path": CALLED_PATH}
    await stage.request("caller", "request-caller", playbook("calls", [{"step": "call", "tool": [call]}]))
    await stage.until(lambda: len(stage.tables.executions) == 2)
    (called,) = stage.tables.executions.keys() - {"caller"}
    assert names_of(await credentials.used_by([called])) == ["of_caller"], "its args may be values of its caller"
    await record_use(credentials, called, "of_called")
    await stage.ended("caller")
    assert names_of(await credentials.used_by(["caller"])) == ["of_called", "of_caller"]


async def record_use(credentials: MemoryCredentials, execution_id: str, name: str) -> None:
    read = await credentials.get(name)
    assert read is not None and await credentials.record_use(execution_id, read)


def names_of(used: Mapping[str, list[SealedValue]]) -> list[str]:
    return sorted(value.name for values in used.values() for value in values)

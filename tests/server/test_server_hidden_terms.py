"""The index of errors holds the words that they show, and none that is hidden (LANGUAGE §11)."""

from __future__ import annotations

from server_stage import ONE_STEP, Stage

from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.model.aggregates import EndedExecutions, TriggerRegistered, TriggerTerms
from noetl_stream.model.events import StepFailed, StepStarted
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.search_terms import word_terms
from noetl_stream.operations.credentials import DirectCredentials
from noetl_stream.operations.executions.submit import ask_aggregate
from noetl_stream.ports.stores.store import InboxRow
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.ticks.ends import READ_EVERY_S
from noetl_testkit.memory.access import MemoryAudit

KEYS = KeyRing(read_key(new_key(), "a test"))
SECRET = "hunter2-mango"
ERROR = ErrorInfo("exception", f"the key x{SECRET}x ({SECRET.encode().hex()}) of mango was refused")


async def failed(stage: Stage, credentials: MemoryCredentials, execution_id: str, *, given: bool) -> set[str]:
    """The search terms of an execution that fails with the secret in its error."""
    await stage.request(execution_id, f"request-{execution_id}", ONE_STEP)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    if given:
        read = await credentials.get("pg")
        assert read is not None and await credentials.record_use(execution_id, read)
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


async def test_a_trigger_is_told_of_an_end_without_what_is_hidden(stage: Stage) -> None:
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

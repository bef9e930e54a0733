from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from worker_stage import Refusing, Stage

from noetl_stream.errors import StoreMissing
from noetl_stream.model.events import StepFailed, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import Outcome, Payload, Reference, StepValue
from noetl_stream.tools.contract import ToolCall

LARGE = {"items": ["x" * 1_000] * 100, "next": 2}

LARGE_THEN_READ = """
- step: start
  tool:
  - name: fetch
    kind: puppet
    spec: {policy: {rules: [{when: "{{ fetch.next == 2 }}", then: {do: continue, set_ctx: {n: "{{ fetch.next }}"}}}]}}
  - {name: read, kind: puppet, count: "{{ fetch.data.items | length }}"}
"""

READS_STEP = """
- step: start
  tool: [{name: read, kind: puppet, value: "{{ steps.other[1].a }}"}]
  next: {arcs: [{step: other}]}
- step: other
  tool: {kind: noop}
"""


async def large(_call: ToolCall) -> dict[str, Any]:
    return LARGE


def reference_of(stage: Stage) -> Reference:
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    assert processed.outcome.result.reference is not None
    return processed.outcome.result.reference


async def test_a_large_result_is_kept_in_the_object_store_and_named_by_a_reference(stage: Stage) -> None:
    stage.puppet.acts["fetch"] = large
    await stage.start()
    await stage.issue(stage.command(stage.plan(LARGE_THEN_READ)))
    reference = reference_of(stage)
    data = await stage.blobs.get(reference.key)
    assert json.loads(data) == LARGE
    assert reference.key == f"execution-1/command-1/1.1.{stage.reports[0].nonce}/0"
    assert (reference.store, reference.size) == ("nats", len(data))
    assert reference.checksum == f"sha256:{sha256(data).hexdigest()}"
    assert reference.schema_hint == "object of items, next"
    assert reference.preview == data.decode()[:200]


async def test_later_templates_and_policies_read_a_large_result_without_knowing(stage: Stage) -> None:
    stage.puppet.acts["fetch"] = large
    await stage.start()
    await stage.issue(stage.command(stage.plan(LARGE_THEN_READ)))
    assert stage.puppet.calls[1].inputs["count"] == 100
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    assert processed.set_ctx == {"n": 2}


async def test_a_result_is_kept_until_the_missing_object_store_is_made_again(stage: Stage) -> None:
    blobs = Refusing(stage.broker.blobs, "put")
    blobs.error = StoreMissing("stream OBJ does not exist", hint="run `noetl-stream stream ensure`")
    blobs.refuses = True
    stage.puppet.acts["fetch"] = large
    await stage.start(blobs=blobs)
    await stage.issue(stage.command(stage.plan(LARGE_THEN_READ)))
    await stage.advance(20, step_s=1.0)
    (worker,) = await stage.presences()
    assert [running.waits_for for running in worker.running] == [
        "its result cannot be stored: stream OBJ does not exist (run `noetl-stream stream ensure`)"
    ]
    blobs.refuses = False
    await stage.advance(2.0, step_s=0.25)
    assert stage.names[-1] == "step.done"
    assert len(stage.puppet.calls) == 2
    assert await stage.broker.blobs.get(reference_of(stage).key)


async def test_a_result_at_the_limit_stays_inline(stage: Stage) -> None:
    async def exactly(_call: ToolCall) -> str:
        return "x" * 98

    stage.puppet.acts["fetch"] = exactly
    plan = stage.plan("- step: start\n  tool: [{name: fetch, kind: puppet}]\n")
    await stage.start()
    await stage.issue(stage.command(plan, limits=Limits(max_inline_bytes=100)))
    await stage.issue(stage.command(plan, "command-2", limits=Limits(max_inline_bytes=99)))
    inline, kept = [fact.outcome.result for fact in stage.facts if isinstance(fact, TaskProcessed)]
    assert inline.reference is None
    assert kept.reference is not None and kept.reference.schema_hint == "string"


async def test_the_object_is_stored_before_the_report_that_names_it(stage: Stage) -> None:
    blobs = Refusing(stage.broker.blobs, "put")
    blobs.refuses = True
    stage.puppet.acts["fetch"] = large
    await stage.start(blobs=blobs)
    await stage.issue(stage.command(stage.plan(LARGE_THEN_READ)))
    await stage.advance(3.0, step_s=0.25)
    assert len(blobs.tried) > 3
    assert "task.processed" not in stage.names
    blobs.refuses = False
    await stage.advance(1.0)
    assert stage.names[-1] == "step.done"
    assert len(stage.puppet.calls) == 2


async def test_a_large_result_of_another_step_is_read_by_reference(stage: Stage) -> None:
    data = codec.encode([{"a": 1}, {"a": 2}])
    await stage.broker.blobs.put("some/key", data)
    other = StepValue(Outcome("ok", Payload(reference=Reference("nats", "some/key", len(data)))))
    await stage.start()
    await stage.issue(stage.command(stage.plan(READS_STEP), steps={"other": other}))
    assert stage.puppet.calls[0].inputs["value"] == 2


@pytest.mark.parametrize("in_vain", [0, 3], ids=["at once", "when a server can"])
async def test_the_result_of_a_large_loop_is_gathered_by_a_server_when_it_is_read(stage: Stage, in_vain: int) -> None:
    data = codec.encode([{"a": 1}, {"a": 2}])
    await stage.broker.blobs.put("gathered/key", data)
    answers = [b"null"] * in_vain + [codec.encode({"key": "gathered/key"})]

    async def server(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, answers.pop(0))

    await stage.broker.bus.listen("noetl.ask.result.default", server)
    other = StepValue(Outcome("ok", Payload(reference=Reference("journal", "execution-1.steprun-0", len(data)))))
    await stage.start()
    await stage.issue(stage.command(stage.plan(READS_STEP), steps={"other": other}))
    for _ in range(in_vain):
        await stage.advance(2.5)
    assert stage.puppet.calls[0].inputs["value"] == 2


async def test_a_loop_result_that_is_lost_is_reported_as_lost_and_says_why(stage: Stage) -> None:
    async def server(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, codec.encode({"lost": "nothing under some/key"}))

    await stage.broker.bus.listen("noetl.ask.result.*", server)
    other = StepValue(Outcome("ok", Payload(reference=Reference("journal", "execution-1.steprun-0", 9))))
    await stage.start()
    await stage.issue(stage.command(stage.plan(READS_STEP), steps={"other": other}))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "result_lost"
    assert "execution-1.steprun-0" in failed.error.message and "some/key" in failed.error.message


async def test_a_lost_result_is_reported_as_lost_and_names_it(stage: Stage) -> None:
    other = StepValue(Outcome("ok", Payload(reference=Reference("nats", "lost/key", 9))))
    await stage.start()
    await stage.issue(stage.command(stage.plan(READS_STEP), steps={"other": other}))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "result_lost"
    assert "lost/key" in failed.error.message


async def test_a_damaged_result_is_reported_as_lost_and_names_it(stage: Stage) -> None:
    await stage.broker.blobs.put("some/key", b'[1,{"a":2}]')
    damaged = Reference("nats", "some/key", 9, checksum="sha256:0000")
    await stage.start()
    other = StepValue(Outcome("ok", Payload(reference=damaged)))
    await stage.issue(stage.command(stage.plan(READS_STEP), steps={"other": other}))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and "some/key" in failed.error.message


async def test_a_result_lost_before_its_own_policy_reads_it_fails_the_task(stage: Stage) -> None:
    blobs = Refusing(stage.broker.blobs, "get")
    stage.puppet.acts["fetch"] = large

    async def put_and_lose(key: str, data: bytes | memoryview) -> None:
        await stage.broker.blobs.put(key, data)
        stage.broker.blobs.lose(key)

    blobs.put = put_and_lose
    await stage.start(blobs=blobs)
    await stage.issue(stage.command(stage.plan(LARGE_THEN_READ)))
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    assert (processed.do, processed.rule) == ("fail", -1)
    assert processed.error is not None and processed.error.kind == "result_lost"
    assert stage.names[-1] == "step.failed"


async def test_a_run_reads_no_more_than_its_limit_of_bytes(stage: Stage) -> None:
    huge = Reference("nats", "huge/key", 10**9)
    other = StepValue(Outcome("ok", Payload(reference=huge)))
    await stage.start()
    await stage.issue(stage.command(stage.plan(READS_STEP), steps={"other": other}))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and "huge/key" in failed.error.message

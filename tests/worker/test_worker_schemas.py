"""Results compared with the schemas of their tasks, on the worker (LANGUAGE §10)."""

from __future__ import annotations

from typing import Any

import pytest
from worker_stage import Stage

from noetl_stream.model.events import StepDone, StepFailed, TaskProcessed
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Go, Progress
from noetl_stream.model.outcome import Outcome

INLINE = """
- step: start
  tool:
  - name: act
    kind: puppet
    spec:
      result: { schema: { type: object, properties: { age: { type: integer } }, required: [age] } }
"""
NAMED = """
- step: start
  tool:
  - { name: act, kind: puppet, spec: { result: { schema: { path: schemas/user } } } }
"""
SCHEMA = """
apiVersion: noetl.io/v2
kind: Schema
metadata: { name: user, path: schemas/user }
spec: { properties: { age: { type: integer } } }
"""


def gives(value: Any) -> Any:
    async def act(_call: Any) -> Any:
        return value

    return act


async def outcome_of(stage: Stage, text: str, value: Any, **changes: Any) -> Outcome:
    """What the task ``act`` came to with this result."""
    stage.puppet.acts["act"] = gives(value)
    await stage.start()
    await stage.issue(stage.command(stage.plan(text), **changes))
    await stage.soon(lambda: any(isinstance(fact, TaskProcessed) for fact in stage.facts))
    return next(fact for fact in stage.facts if isinstance(fact, TaskProcessed)).outcome


async def serve(stage: Stage, *sources: str) -> list[str]:
    """Answers for schemas; the list is of the digests asked for."""
    asked: list[str] = []
    known = {digest_of(source): source for source in sources}

    async def answer(_subject: str, body: bytes, reply: str) -> None:
        asked.append(codec.decode_playbook_question(body).schema)
        source = known.get(asked[-1])
        stage.broker.bus.send(reply, codec.encode({} if source is None else {"source": source, "path": "schemas/user"}))

    await stage.broker.bus.listen("noetl.ask.playbook.default", answer)
    return asked


async def test_a_result_that_matches_its_schema_continues(stage: Stage) -> None:
    assert (await outcome_of(stage, INLINE, {"age": 3})).status == "ok"
    assert isinstance(stage.facts[-1], StepDone)


async def test_a_mismatch_is_an_error_with_the_pointer_that_keeps_the_result(stage: Stage) -> None:
    outcome = await outcome_of(stage, INLINE, {"age": "three"})
    assert outcome.status == "error" and outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("schema_mismatch", "/age", False)
    assert outcome.error.message.startswith("the result does not match its schema at `/age`: ")
    assert "three" not in outcome.error.message
    assert codec.decode_json(outcome.result.value) == {"age": "three"}
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "schema_mismatch"


async def test_a_policy_can_handle_a_mismatch(stage: Stage) -> None:
    rule = "policy: { rules: [ { when: \"{{ outcome.error.kind == 'schema_mismatch' }}\", then: { do: continue } } ] }"
    handled = INLINE.replace("      result:", f"      {rule}\n      result:")
    assert (await outcome_of(stage, handled, [])).status == "error"
    assert isinstance(stage.facts[-1], StepDone)


async def test_a_large_result_is_compared_before_it_is_stored(stage: Stage) -> None:
    assert (await outcome_of(stage, INLINE, {"age": 1, "text": "x" * 200_000})).result.reference is not None
    stage.puppet.acts["act"] = gives({"age": "x" * 200_000})
    await stage.issue(stage.command(stage.plan(INLINE), "command-2", step_run_id="steprun-2"))
    await stage.soon(lambda: isinstance(stage.facts[-1], StepFailed))


async def test_a_schema_of_the_catalog_is_asked_for_once_by_its_digest(stage: Stage) -> None:
    asked = await serve(stage, SCHEMA)
    pinned = {"schemas/user": digest_of(SCHEMA)}
    outcome = await outcome_of(stage, NAMED, {"age": "three"}, schemas=pinned)
    assert outcome.error is not None and outcome.error.code == "/age"
    await stage.issue(stage.command(stage.plan(NAMED), "command-2", step_run_id="steprun-2", schemas=pinned))
    assert sum(isinstance(fact, TaskProcessed) for fact in stage.facts) == 2
    assert asked == [digest_of(SCHEMA)]


@pytest.mark.parametrize(
    ("digest", "sources", "retryable"),
    [("unknown", (), True), (digest_of("a: 1"), ("a: 1",), False)],
)
async def test_a_schema_that_cannot_be_had_is_an_error(
    stage: Stage, digest: str, sources: tuple[str, ...], retryable: bool
) -> None:
    await serve(stage, *sources)
    outcome = await outcome_of(stage, NAMED, {}, schemas={"schemas/user": digest})
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("schema_unavailable", retryable)


async def test_answers_that_a_task_waited_for_are_compared_with_the_schema_too(stage: Stage) -> None:
    text = """
    - step: start
      tool:
      - { name: ask, kind: wait, signal: go, timeout_s: 60, spec: { result: { schema: { type: object } } } }
    """
    await stage.start()
    resume = Go(progress={"": Progress(task="ask")}, answers={"": Outcome("ok", codec.payload_of([1]))})
    await stage.issue(stage.command(stage.plan(text), segment=1, resume=resume))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "schema_mismatch"

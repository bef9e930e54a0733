from __future__ import annotations

from typing import Any

import pytest
from worker_stage import Stage, inputs_of

from noetl_stream.engine.runner.runner import MAX_WAITS_BYTES
from noetl_stream.model.events import ChildCall, TaskProcessed, TaskStarted, Wait
from noetl_stream.model.json.codec import decode_json, payload_of
from noetl_stream.model.messages import Go
from noetl_stream.model.outcome import ErrorInfo, Meta, Outcome
from noetl_stream.worker.child_playbooks import PinnedPlaybook

CHILD = PinnedPlaybook("digest-1", "jobs/child", "1.0", "a pin")
NEWER = PinnedPlaybook("digest-2", "jobs/child", "2.0", "a pin")


def waits_with(inputs: str, spec: str = "{}") -> str:
    return f"""
- step: start
  tool:
  - name: pause
    kind: wait
    {inputs}
    spec: {spec}
  - name: after
    kind: puppet
    paused: "{{{{ pause | default('nothing') }}}}"
"""


def calls_with(inputs: str, spec: str = "{}") -> str:
    return waits_with(inputs, spec).replace("kind: wait", "kind: playbook")


def processed_of(stage: Stage) -> TaskProcessed:
    return [fact for fact in stage.facts if isinstance(fact, TaskProcessed)][-1]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("for_s: 60", Wait((), "pause", for_s=60)),
        ('for_s: "{{ workload.items | sum }}"', Wait((), "pause", for_s=6)),
        ("until: '2030-01-31T09:00:00Z'", Wait((), "pause", until_ms=1896080400000)),
        ("signal: approved\n    timeout_s: 90", Wait((), "pause", signal="approved", timeout_s=90)),
    ],
)
async def test_a_wait_suspends_the_step_and_says_for_what(stage: Stage, inputs: str, expected: Wait) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(waits_with(inputs))))
    assert stage.names == ["step.started", "task.started", "step.suspended"]
    assert stage.waits == [expected]
    assert await stage.queued() == set()


async def test_the_time_of_a_task_bounds_its_wait_for_a_signal(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(waits_with("signal: go\n    timeout_s: 90", "{timeout: 30}"))))
    assert stage.waits == [Wait((), "pause", signal="go", timeout_s=30)]


@pytest.mark.parametrize("inputs", ["for_s: 60", "until: '2025-06-15T15:07:40Z'"])
async def test_a_wait_longer_than_the_time_of_its_task_is_a_timeout_at_once(stage: Stage, inputs: str) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(waits_with(inputs, "{timeout: 30}"))))
    error = processed_of(stage).outcome.error
    assert error is not None and error.kind == "timeout"
    assert "60 s" in error.message and "30 s" in error.message
    assert stage.names[-1] == "step.failed"


@pytest.mark.parametrize(
    "inputs",
    [
        "for_s: \"{{ 'soon' }}\"",
        "until: \"{{ 'tomorrow' }}\"",
        'for_s: "{{ 0 - 1 }}"',
        "signal: \"{{ '' }}\"\n    timeout_s: 5",
    ],
)
async def test_a_wait_with_unusable_inputs_is_an_error_its_policy_can_handle(stage: Stage, inputs: str) -> None:
    rule = "{when: \"{{ outcome.error.kind == 'invalid_input' }}\", then: {do: continue}}"
    await stage.start()
    await stage.issue(stage.command(stage.plan(waits_with(inputs, f"{{policy: {{rules: [{rule}]}}}}"))))
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    assert processed.outcome.error is not None and processed.outcome.error.kind == "invalid_input"
    assert "step.suspended" not in stage.names
    assert stage.names[-1] == "step.done"


async def resume_with(stage: Stage, steps: str, answer: Outcome) -> None:
    """Runs these steps to their first wait, and goes on with this answer."""
    command = stage.command(stage.plan(steps), trace_id="trace-1")
    await stage.issue(command)
    recorded = stage.recorded
    go = Go(1, recorded.progress, ctx=recorded.ctx, vars=recorded.vars, answers={"": answer})
    await stage.resume(command, go)


async def test_the_payload_of_a_signal_is_the_result_of_its_wait(stage: Stage) -> None:
    await stage.start()
    await resume_with(stage, waits_with("signal: go\n    timeout_s: 9"), Outcome("ok", payload_of({"by": "ann"})))
    assert stage.names[3:5] == ["step.started", "task.processed"]
    assert inputs_of(stage.puppet.calls, "paused") == [{"by": "ann"}]
    assert stage.names[-1] == "step.done"


async def test_an_answered_wait_is_filled_in_like_any_attempt(stage: Stage) -> None:
    await stage.start()
    await stage.advance(1.5)
    await resume_with(stage, waits_with("for_s: 9"), Outcome("ok", meta=Meta(started_at="earlier", duration_s=9.0)))
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    meta = processed.outcome.meta
    assert (meta.attempt, meta.worker, meta.trace_id) == (1, "worker-1", "trace-1")
    assert (meta.started_at, meta.duration_s) == ("earlier", 9.0)
    assert meta.ended_at == "2025-06-15T15:06:41.500Z"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Outcome("ok", payload_of({"by": "ann"})), ("break", {"by": "ann"})),
        (Outcome("error", error=ErrorInfo("timeout", "nobody came")), ("fail", {})),
    ],
)
async def test_the_policy_of_a_wait_decides_by_what_it_was_answered(
    stage: Stage, answer: Outcome, expected: tuple[str, dict[str, str]]
) -> None:
    rules = (
        "{policy: {rules: [{when: \"{{ outcome.error.kind == 'timeout' }}\", then: {do: fail}}, "
        "{else: {then: {do: break, set_ctx: {by: '{{ outcome.result.by }}'}}}}]}}"
    )
    steps = waits_with("signal: go\n    timeout_s: 9", rules)
    await stage.start()
    await resume_with(stage, steps, answer)
    processed = processed_of(stage)
    assert (processed.do, processed.set_ctx) == expected


async def test_a_call_is_pinned_to_the_latest_version_at_the_call(stage: Stage) -> None:
    await stage.answer_catalog(CHILD, NEWER)
    await stage.start()
    steps = calls_with("path: jobs/child\n    args: {n: '{{ workload.items[0] }}'}\n    return_step: last")
    await stage.issue(stage.command(stage.plan(steps)))
    call = ChildCall("digest-2", "jobs/child", "2.0", {"n": 1}, "last", pin="a pin")
    assert stage.names == ["step.started", "task.started", "step.suspended"]
    assert stage.waits == [Wait((), "pause", child=call)]


async def test_a_call_may_name_a_version_and_has_the_time_of_its_task(stage: Stage) -> None:
    await stage.answer_catalog(CHILD, NEWER)
    await stage.start()
    steps = calls_with("path: jobs/child\n    version: '1.0'", "{timeout: 30}")
    await stage.issue(stage.command(stage.plan(steps)))
    assert stage.waits == [
        Wait((), "pause", child=ChildCall("digest-1", "jobs/child", "1.0", pin="a pin"), timeout_s=30)
    ]


async def test_a_call_of_an_unknown_playbook_is_an_error_outcome(stage: Stage) -> None:
    await stage.answer_catalog(CHILD)
    await stage.start()
    await stage.issue(stage.command(stage.plan(calls_with("path: jobs/chidl"))))
    error = processed_of(stage).outcome.error
    assert error is not None and error.kind == "invalid_playbook"
    assert "jobs/chidl" in error.message
    assert stage.names[-1] == "step.failed"


async def test_the_result_of_a_child_is_that_of_its_call(stage: Stage) -> None:
    await stage.answer_catalog(CHILD)
    await stage.start()
    await resume_with(stage, calls_with("path: jobs/child"), Outcome("ok", payload_of([1, 2])))
    assert inputs_of(stage.puppet.calls, "paused") == [[1, 2]]
    last = processed_of(stage)
    assert (last.task, decode_json(last.outcome.result.value)) == ("after", {"paused": [1, 2]})


async def test_a_retry_after_a_failed_child_starts_a_new_child(stage: Stage) -> None:
    await stage.answer_catalog(CHILD)
    await stage.start()
    rule = "{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 2, delay: 0}}"
    steps = calls_with("path: jobs/child", f"{{policy: {{rules: [{rule}]}}}}")
    failed = Outcome("error", error=ErrorInfo("child_failed", "it failed"))
    await resume_with(stage, steps, failed)
    assert stage.names[3:] == ["step.started", "task.processed", "task.started", "step.suspended"]
    assert [fact.attempt for fact in stage.facts if isinstance(fact, TaskStarted)] == [1, 2]
    assert stage.waits == [Wait((), "pause", child=ChildCall("digest-1", "jobs/child", "1.0", pin="a pin"))]


async def test_a_failed_child_without_policy_fails_the_step(stage: Stage) -> None:
    await stage.answer_catalog(CHILD)
    await stage.start()
    failed = Outcome("error", error=ErrorInfo("child_failed", "it failed"))
    await resume_with(stage, calls_with("path: jobs/child"), failed)
    assert stage.names[-2:] == ["task.processed", "step.failed"]


async def test_args_that_fit_no_event_are_an_error_that_names_the_limit(stage: Stage) -> None:
    await stage.answer_catalog(CHILD)
    await stage.start()
    steps = calls_with("path: jobs/child\n    args: '{{ workload.big }}'")
    big: dict[str, Any] = {"big": {"text": "x" * MAX_WAITS_BYTES}}
    await stage.issue(stage.command(stage.plan(steps), workload=big))
    error = processed_of(stage).outcome.error
    assert error is not None and error.kind == "limit_exceeded"
    assert str(MAX_WAITS_BYTES) in error.message


async def test_a_call_waits_until_a_server_answers(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(calls_with("path: jobs/child"))))
    await stage.advance(3.0, step_s=0.5)
    assert stage.names == ["step.started", "task.started"]
    await stage.answer_catalog(CHILD)
    await stage.advance(6.0, step_s=0.5)
    assert stage.names[-1] == "step.suspended"

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from worker_stage import Endless, Stage, inputs_of

from noetl_stream.model.events import StepDone, StepFailed, TaskProcessed
from noetl_stream.model.json.codec import decode_json, payload_of
from noetl_stream.model.messages import Go, Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome, StepValue
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.worker.worker_limits import MAX_MESSAGE_CHARACTERS, MAX_OUTPUT_CHARACTERS

ONE_ACT = """
- step: start
  tool:
  - {name: act, kind: puppet}
"""


def raises(error: BaseException) -> Any:
    async def act(_call: ToolCall) -> Any:
        raise error

    return act


async def processed_of(stage: Stage, text: str = ONE_ACT, **changes: Any) -> TaskProcessed:
    """The first ``task.processed`` of a run of these steps."""
    await stage.start()
    await stage.issue(stage.command(stage.plan(text), **changes))
    return next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))


async def test_a_failed_task_keeps_its_error_result_helper_and_output(stage: Stage) -> None:
    error = ErrorInfo("http_status", "404", code="404")
    failure = ToolFailure(error, result={"body": 1}, helper={"status": 404}, output="tried")
    stage.puppet.acts["act"] = raises(failure)
    processed = await processed_of(stage)
    outcome = processed.outcome
    assert (outcome.status, outcome.error, outcome.helper, outcome.output) == ("error", error, {"status": 404}, "tried")
    assert decode_json(outcome.result.value) == {"body": 1}
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed)
    assert (failed.error.kind, failed.error.task) == ("http_status", "act")


async def test_an_outcome_says_who_ran_it_and_when(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT), trace_id="trace-1"))
    await stage.advance(1.5)
    endless.release.set()
    await stage.settle()
    meta = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed)).outcome.meta
    assert (meta.attempt, meta.worker, meta.trace_id, meta.duration_s) == (1, "worker-1", "trace-1", 1.5)
    assert (meta.started_at, meta.ended_at) == ("2025-06-15T15:06:40.000Z", "2025-06-15T15:06:41.500Z")


async def test_a_tool_with_a_defect_fails_as_internal_and_its_traceback_is_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.puppet.acts["act"] = raises(ZeroDivisionError("a defect"))
    with caplog.at_level(logging.ERROR):
        processed = await processed_of(stage)
    assert processed.outcome.error is not None
    assert processed.outcome.error.kind == "internal"
    assert "ZeroDivisionError: a defect" in processed.outcome.error.message
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
async def test_a_tool_cannot_end_the_worker_or_cancel_itself(stage: Stage, error: BaseException) -> None:
    stage.puppet.acts["act"] = raises(error)
    processed = await processed_of(stage)
    assert processed.outcome.error is not None and processed.outcome.error.kind == "internal"
    assert stage.names[-1] == "step.failed"


async def test_a_result_that_is_not_json_is_an_error(stage: Stage) -> None:
    async def act(_call: ToolCall) -> ToolResult:
        return ToolResult({"when": object()})

    stage.puppet.acts["act"] = act
    processed = await processed_of(stage)
    assert processed.outcome.error is not None and processed.outcome.error.kind == "result_not_json"


async def test_a_task_that_takes_too_long_is_cancelled_and_times_out(stage: Stage) -> None:
    stage.puppet.acts["act"] = Endless()
    await stage.start()
    steps = ONE_ACT.replace("kind: puppet", "kind: puppet, spec: {timeout: 0.01}")
    await stage.issue(stage.command(stage.plan(steps)))
    await stage.soon(lambda: stage.names[-1:] == ["step.failed"])
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed)
    assert (failed.error.kind, failed.error.retryable, failed.error.task) == ("timeout", True, "act")
    assert "0.01 s" in failed.error.message
    assert stage.puppet.cancelled == ["act"]


async def test_the_time_of_a_task_may_be_a_template_over_what_its_inputs_read(stage: Stage) -> None:
    stage.puppet.acts["act"] = Endless()
    await stage.start()
    steps = ONE_ACT.replace("kind: puppet", 'kind: puppet, spec: {timeout: "{{ workload.seconds / 100 }}"}')
    await stage.issue(stage.command(stage.plan(steps), workload={"seconds": 1}))
    await stage.soon(lambda: stage.names[-1:] == ["step.failed"])
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed)
    assert (failed.error.kind, "0.01 s" in failed.error.message) == ("timeout", True)


async def test_each_part_of_a_timeout_may_be_a_template_over_the_constants_around_it(stage: Stage) -> None:
    await stage.start()
    timeout = '{connect: 3, read: "{{ workload.seconds }}", total: "{{ none }}"}'
    steps = ONE_ACT.replace("kind: puppet", f"kind: puppet, spec: {{timeout: {timeout}}}")
    await stage.issue(stage.command(stage.plan(steps), workload={"seconds": 9}))
    [call] = stage.puppet.calls
    assert call.timeouts == Timeouts(None, 3.0, 9)


@pytest.mark.parametrize("seconds", ["'soon'", "0", "-1", "true", "workload.seconds"])
async def test_a_time_that_is_no_number_of_seconds_fails_the_task(stage: Stage, seconds: str) -> None:
    steps = ONE_ACT.replace("kind: puppet", f'kind: puppet, spec: {{timeout: "{{{{ {seconds} }}}}"}}')
    processed = await processed_of(stage, steps)
    error = processed.outcome.error
    assert error is not None and error.kind == "expression_error"
    assert "the timeout of task act" in error.message
    assert stage.puppet.calls == []


async def test_a_timeout_error_of_the_tool_itself_is_not_taken_for_the_tasks_timeout(stage: Stage) -> None:
    stage.puppet.acts["act"] = raises(TimeoutError("of the tool"))
    steps = ONE_ACT.replace("kind: puppet", "kind: puppet, spec: {timeout: 60}")
    processed = await processed_of(stage, steps)
    assert processed.outcome.error is not None and processed.outcome.error.kind == "internal"


async def test_inputs_that_cannot_be_rendered_are_an_error_outcome_its_policy_can_handle(stage: Stage) -> None:
    steps = """
- step: start
  tool:
  - name: act
    kind: puppet
    text: "{{ workload.missing }}"
    spec: {policy: {rules: [{when: "{{ outcome.error.kind == 'expression_error' }}", then: {do: break}}]}}
"""
    processed = await processed_of(stage, steps)
    assert stage.puppet.calls == []
    assert processed.outcome.error is not None and "workload.missing" in processed.outcome.error.message
    assert stage.facts[-1] == StepDone("steprun-1")


async def test_no_report_holds_a_nul(stage: Stage) -> None:
    stage.puppet.acts["act"] = raises(ToolFailure(ErrorInfo("sql", "a\0b"), output="\\u0000\0"))
    outcome = (await processed_of(stage)).outcome
    assert outcome.error is not None and outcome.error.message == "a\ufffdb"
    assert outcome.output == "\\u0000\ufffd"


async def test_a_very_long_message_and_output_are_cut(stage: Stage) -> None:
    stage.puppet.acts["act"] = raises(ToolFailure(ErrorInfo("sql", "m" * 9_000), output="o" * 90_000))
    outcome = (await processed_of(stage)).outcome
    assert outcome.error is not None and len(outcome.error.message) == MAX_MESSAGE_CHARACTERS + 1
    assert len(outcome.output) == MAX_OUTPUT_CHARACTERS + 1


async def test_a_helper_block_that_fits_no_report_is_an_error(stage: Stage) -> None:
    async def act(_call: ToolCall) -> ToolResult:
        return ToolResult(1, helper={"headers": "h" * 100_000})

    stage.puppet.acts["act"] = act
    outcome = (await processed_of(stage)).outcome
    assert outcome.error is not None and outcome.error.kind == "output_too_large"
    assert "limits.max_inline_bytes is 65,536" in outcome.error.message
    assert "NOETL_LIMIT_MAX_INLINE_BYTES" in outcome.error.message
    assert outcome.helper == {}


async def test_a_helper_block_that_is_not_json_is_a_defect_of_the_tool(stage: Stage) -> None:
    async def act(_call: ToolCall) -> ToolResult:
        return ToolResult(1, helper={"headers": object()})

    stage.puppet.acts["act"] = act
    outcome = (await processed_of(stage)).outcome
    assert outcome.error is not None and outcome.error.kind == "internal"


async def test_a_tool_call_has_its_place_and_the_scope(stage: Stage) -> None:
    await processed_of(stage, workload={"a": 1}, ctx={"b": 2})
    (call,) = stage.puppet.calls
    assert (call.execution_id, call.step, call.task, call.attempt) == ("execution-1", "start", "act", 1)
    assert dict(call.scope) == {"workload": {"a": 1}, "ctx": {"b": 2}, "iter": {}, "execution_id": "execution-1"}


async def test_templates_see_args_steps_ctx_and_earlier_tasks(stage: Stage) -> None:
    steps = """
- step: start
  tool:
  - {name: first, kind: puppet, value: 1}
  - name: second
    kind: puppet
    args: "{{ args.given }}"
    earlier: "{{ first.value }}"
    previous: "{{ _prev.value }}"
    known: "{{ ctx.known }}"
    step: "{{ steps.other.page }}"
    unknown: "{{ steps.start is none }}"
    execution: "{{ execution_id }}"
    own: "{{ _task }}"
  next: {arcs: [{step: other}]}
- step: other
  tool: {kind: noop}
"""
    other = {"other": StepValue(Outcome("ok", payload_of({"page": 7})))}
    await processed_of(stage, steps, args={"given": "g"}, ctx={"known": "k"}, steps=other)
    assert dict(stage.puppet.calls[1].inputs) == {
        "args": "g",
        "earlier": 1,
        "previous": 1,
        "known": "k",
        "step": 7,
        "unknown": True,
        "execution": "execution-1",
        "own": "second",
    }


PAGES = """
- step: start
  tool:
  - name: fetch
    kind: puppet
    page: "{{ iter.page | default(1) }}"
    spec:
      policy:
        rules:
        - when: "{{ outcome.status == 'error' }}"
          then: {do: retry, attempts: 3, delay: 4, backoff: fixed}
        - when: "{{ outcome.status == 'ok' and outcome.result.page < 3 }}"
          then:
            do: jump
            to: fetch
            set_iter: {page: "{{ outcome.result.page + 1 }}"}
            set_ctx: {last: "{{ fetch.page }}"}
        - else: {then: {do: continue}}
  - {name: store, kind: puppet, last: "{{ ctx.last }}"}
"""


async def test_a_pipeline_pages_by_jumps_and_sees_its_own_patches(stage: Stage) -> None:
    await processed_of(stage, PAGES)
    assert inputs_of(stage.puppet.calls, "page") == [1, 2, 3, None]
    assert stage.puppet.calls[3].inputs["last"] == 2
    assert stage.names[-1] == "step.done"


async def test_a_retry_waits_in_the_slot_and_counts_its_attempts(stage: Stage) -> None:
    stage.puppet.acts["fetch"] = raises(ToolFailure(ErrorInfo("connection", "gone")))
    await stage.start()
    await stage.issue(stage.command(stage.plan(PAGES)))
    assert len(stage.puppet.calls) == 1
    await stage.advance(3.9)
    assert len(stage.puppet.calls) == 1
    await stage.advance(0.6)
    assert [call.attempt for call in stage.puppet.calls] == [1, 2]
    await stage.advance(4.5)
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "retries_exhausted"


async def test_a_trust_domain_is_one_playbook_for_one_principal(stage: Stage) -> None:
    await stage.start()
    plan, other = stage.plan(ONE_ACT), stage.plan(ONE_ACT.replace("act", "deed"))
    for number, (playbook, principal) in enumerate([(plan, "ann"), (plan, "ann"), (plan, "bob"), (other, "ann")]):
        execution = f"execution-{number}"
        command = stage.command(playbook, f"command-{number}", execution_id=execution, principal=principal)
        await stage.issue(command)
    first, again, *others = [call.trust_domain for call in stage.puppet.calls]
    assert first == again
    assert len({first, *others}) == 3


async def test_the_idempotency_key_stays_over_attempts_and_changes_with_each_visit(stage: Stage) -> None:
    tries = iter([raises(ToolFailure(ErrorInfo("connection", "gone")))])

    async def fetch(call: ToolCall) -> Any:
        act = next(tries, None)
        return await act(call) if act else dict(call.inputs)

    stage.puppet.acts["fetch"] = fetch
    await stage.start()
    await stage.issue(stage.command(stage.plan(PAGES)))
    await stage.advance(4.5)
    first, again, second_page, third_page, _ = [call.idempotency_key for call in stage.puppet.calls]
    assert first == again
    assert len({first, second_page, third_page}) == 3


async def test_the_idempotency_key_stays_over_redeliveries(stage: Stage) -> None:
    stage.puppet.acts["store"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(PAGES)))
    before = stage.puppet.calls[-1]
    page = payload_of({"page": 3})
    stands = Progress(task="store", runs=3, previous="fetch", ctx={"last": 2}, results={"fetch": Outcome("ok", page)})
    await stage.answer_claims(lambda report: Go(progress={"": stands}, ctx={"last": 2}))
    stage.broker.command_queue.forget_unacked()
    await stage.settle()
    after = stage.puppet.calls[-1]
    assert before.task == after.task == "store"
    assert before is not after
    assert before.idempotency_key == after.idempotency_key


async def test_iterations_have_different_idempotency_keys(stage: Stage) -> None:
    loop = "- step: start\n  loop: {in: [1, 2], iterator: item}\n  tool: [{name: act, kind: puppet}]\n"
    await processed_of(stage, loop, items=[1, 2])
    assert len({call.idempotency_key for call in stage.puppet.calls}) == 2


async def test_patches_of_a_task_policy_are_in_its_own_event(stage: Stage) -> None:
    processed = await processed_of(stage, PAGES)
    assert (processed.do, processed.to, processed.rule) == ("jump", "fetch", 1)
    assert (processed.set_iter, processed.set_ctx) == ({"page": 2}, {"last": 1})

"""What a task writes while it runs, and what its worker says about it, in LOGS."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from keychain_stage import Vault
from worker_stage import EXECUTION, Endless, Stage

from measured import samples_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import NamespaceShare
from noetl_stream.model.task_log import LogLine, LogStream
from noetl_stream.protocol.subjects import LogOwner, named_in_logs
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.worker import worker_limits as limits
from noetl_stream.worker.status_report import WorkerStatus
from noetl_stream.worker.task_logs import lines
from noetl_stream.worker.task_logs.lines import TimedText
from noetl_stream.worker.task_logs.publisher import REFILLED_S
from noetl_stream.worker.task_logs.step_log import LINE_BYTES
from noetl_stream.worker.worker import Worker
from noetl_testkit.conformance.task_logs import everything

SHARE_BYTES = 128 * 1024

ONE = """
- step: start
  tool:
  - {name: act, kind: puppet}
"""

RETRY = """
- step: start
  tool:
  - name: act
    kind: puppet
    spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 2, delay: 2}}]}}
"""

TIMEOUT = """
- step: start
  tool:
  - {name: act, kind: puppet, spec: {timeout: 0.05}}
"""

LOOP = """
- step: start
  loop: {in: "{{ workload.items }}", iterator: item, spec: {mode: parallel, exec: local}}
  tool:
  - {name: act, kind: puppet, n: "{{ iter.item }}"}
"""

SECRET = """
- step: start
  tool:
  - {name: act, kind: puppet, said: "{{ keychain.mine }}"}
keychain:
- {name: mine, kind: credential}
"""

Write = Callable[[LogStream, bytes], None]


class Writing:
    """An act that writes ``pieces`` to stdout; without an end, it waits until the test releases it."""

    def __init__(self, *pieces: bytes, ends: bool = True) -> None:
        self.pieces = pieces
        self.release = asyncio.Event()
        if ends:
            self.release.set()

    async def __call__(self, call: ToolCall) -> str:
        for piece in self.pieces:
            call.write("stdout", piece)
        await self.release.wait()
        return "done"


async def lines_of(stage: Stage, execution_id: str = EXECUTION) -> list[LogLine]:
    stored = await everything(stage.broker.task_logs, execution_id)
    return [line for body in stored for line in codec.decode_log_batch(body).lines]


async def texts(stage: Stage, *streams: LogStream) -> list[str]:
    return [line.text for line in await lines_of(stage) if not streams or line.stream in streams]


async def run(stage: Stage, steps: str, act: Any, **changes: Any) -> Worker:
    """Runs a step whose task ``act`` does this, as far as it comes by itself."""
    worker = await stage.start(**changes)
    await run_as(stage, "", act, steps)
    return worker


async def run_as(stage: Stage, namespace: str, act: Any, steps: str = ONE) -> None:
    """The same on a worker that runs, for a namespace; each has an execution of its own."""
    stage.puppet.acts["act"] = act
    share = NamespaceShare(namespace, log_bytes=SHARE_BYTES if namespace else 0)
    ids = {"command_id": f"command-{namespace}", "execution_id": f"of-{namespace}"} if namespace else {}
    await stage.issue(stage.command(stage.plan(steps), share=share, **ids))


async def test_a_line_is_there_while_its_task_runs(stage: Stage) -> None:
    act = Writing(b"one\ntw", ends=False)
    await run(stage, ONE, act)
    assert await lines_of(stage) == []
    began_ms = stage.clock.now_ms()
    await stage.advance(limits.LOG_INTERVAL_S)
    said = LogLine(began_ms, "act", "started", "worker")
    assert await lines_of(stage) == [said, LogLine(began_ms, "act", "one")]
    act.release.set()
    await stage.settle()
    assert await texts(stage) == ["started", "one", "tw", "ok after 0.100 s"]


async def test_lines_for_which_there_is_no_room_are_only_counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of line ends held the worker's loop for half a second."""
    made: list[str] = []

    def timed(at_ms: int, text: str) -> TimedText:
        made.append(text)
        return TimedText(at_ms, text)

    monkeypatch.setattr(lines, "TimedText", timed)
    worker = await run(stage, ONE, Writing(b"\n" * 1024 * 1024))
    assert len(made) * LINE_BYTES <= limits.MAX_LOGS_HELD_BYTES
    assert worker.logs.lines_dropped >= 1024 * 1024 - len(made)


async def test_a_batch_says_whose_lines_it_has(stage: Stage) -> None:
    await run(stage, ONE, Writing(b"one\n"))
    (stored,) = await stage.broker.task_logs.read(EXECUTION, 0)
    batch = codec.decode_log_batch(stored.body)
    assert (stored.pool, batch.step, batch.step_run_id, batch.worker) == ("default", "start", "steprun-1", "worker-1")


async def test_a_task_that_writes_nothing_and_ends_soon_costs_no_message(stage: Stage) -> None:
    await run(stage, ONE, None)
    await stage.advance(5)
    assert "step.done" in stage.names
    assert await stage.broker.task_logs.read(EXECUTION, 0) == []


async def test_a_task_longer_than_a_second_is_logged_as_running(stage: Stage) -> None:
    act = Endless()
    await run(stage, ONE, act)
    await stage.advance(limits.LONG_TASK_S)
    await stage.advance(limits.LOG_INTERVAL_S)
    assert await texts(stage) == ["started"]
    act.release.set()
    await stage.settle()
    assert await texts(stage) == ["started", "ok after 1.100 s"]


async def test_lines_of_a_loop_have_their_iteration_and_stream(stage: Stage) -> None:
    async def act(call: ToolCall) -> None:
        call.write("stderr", b"item %d\n" % call.inputs["n"])

    stage.puppet.acts["act"] = act
    await stage.start()
    await stage.issue(stage.command(stage.plan(LOOP), items=[1, 2, 3]))
    found = [(line.iteration, line.text) for line in await lines_of(stage) if line.stream == "stderr"]
    assert found == [((0,), "item 1"), ((1,), "item 2"), ((2,), "item 3")]
    assert len(await stage.broker.task_logs.read(EXECUTION, 0)) == 1


async def test_a_failed_attempt_and_the_rule_that_retries_it_are_logged(stage: Stage) -> None:
    async def act(call: ToolCall) -> None:
        call.write("stdout", b"attempt %d\n" % call.attempt)
        raise ToolFailure.of("broken", "first line\nsecond line")

    await run(stage, RETRY, act)
    await stage.advance(3)
    failed = ["failed: broken: first line", "second line"]
    found = await texts(stage)
    assert re.fullmatch(r"attempt 2 follows in [12]\.\d+ s: rule 1 of its policy", found.pop(4))
    assert found == ["started", "attempt 1", *failed, "started", "attempt 2", *failed]
    assert [line.attempt for line in await lines_of(stage)] == [1] * 5 + [2] * 4


async def test_output_written_before_a_timeout_is_kept(stage: Stage) -> None:
    await run(stage, TIMEOUT, Writing(b"whole\nbegun", ends=False))
    await stage.soon(lambda: "step.failed" in stage.names)
    failed = "failed: timeout: task act took longer than its timeout of 0.05 s"
    assert await texts(stage) == ["started", "whole", "begun", failed]


async def test_output_written_before_a_cancel_is_kept_and_the_reason_is_logged(stage: Stage) -> None:
    await run(stage, ONE, Writing(b"whole\nbegun", ends=False))
    await stage.stop_commands("command-1", reason="wrong month")
    assert await texts(stage) == ["started", "whole", "begun", "cancelled: wrong month"]


async def test_a_closing_worker_logs_it(stage: Stage) -> None:
    worker = await run(stage, ONE, Writing(b"begun", ends=False))
    await worker.close()
    assert await texts(stage) == ["started", "begun", "stopped: its worker ends"]


# Secrets


@pytest.mark.parametrize(
    ("secret", "written", "shown"),
    [
        ("top-secret-1", (b"a top-sec", b"ret-1 b\n"), ["a *** b"]),
        ("top-secret-1", (b"top-secret-1",), ["***"]),
        ("top-secret-1", (b"cut top-secr",), ["cut ***"]),
        ("top-secret-1", (b"x" * (limits.MAX_LOG_LINE_BYTES - 9) + b"top-secret-1\n",), None),
        ("ab\ncd\nefgh", (b"<ab\ncd\n", b"efgh>\nmore\n"), ["<***>", "more"]),
        ("ab\ncd\nefgh", (b"ab\ncd\nother\n",), ["ab", "cd", "other"]),
    ],
    ids=["across pieces", "without an end", "cut by the end", "cut by the limit", "several lines", "like it"],
)
async def test_a_secret_is_hidden_wherever_its_pieces_begin(
    vault: Vault, secret: str, written: tuple[bytes, ...], shown: list[str] | None
) -> None:
    await vault.keeper.put("mine", secret, "test")
    stage = vault.stage

    async def act(call: ToolCall) -> None:
        for piece in written:
            call.write("stdout", piece)
            await stage.clock.sleep(2 * limits.LOG_INTERVAL_S)

    stage.puppet.acts["act"] = act
    await stage.issue(stage.command(stage.plan(SECRET)))
    await stage.soon(lambda: bool(stage.puppet.calls))
    await stage.advance(2, step_s=0.1)
    await stage.soon(lambda: "step.done" in stage.names)
    found = await texts(stage, "stdout")
    assert not any(piece in "\n".join(found) for piece in ("top-secr", "efgh"))
    assert shown is None or found == shown


async def test_a_secret_in_a_failure_or_a_reason_is_hidden_too(vault: Vault) -> None:
    await vault.keeper.put("mine", "top-secret-1", "test")
    stage = vault.stage
    stage.puppet.acts["act"] = Endless()
    await stage.issue(stage.command(stage.plan(SECRET)))
    await stage.soon(lambda: bool(stage.puppet.calls))
    await stage.stop_commands("command-1", reason="it said top-secret-1")
    assert (await texts(stage))[-1] == "cancelled: it said ***"


# Hostile output


async def test_bytes_that_are_no_text_are_shown_as_such(stage: Stage) -> None:
    await run(stage, ONE, Writing(b"\xff\xfe|\x00|\x1b[31m\r\n\n\xe2\x82"))
    assert await texts(stage, "stdout") == ["\ufffd\ufffd|\x00|\x1b[31m", "", "\ufffd"]


async def test_a_line_is_cut_at_its_limit(stage: Stage) -> None:
    await run(stage, ONE, Writing(*[b"\x00" * 65_536] * 100, b"\nnext\n"))
    cut, after = await texts(stage, "stdout")
    assert cut == "\x00" * limits.MAX_LOG_LINE_BYTES + "… (6,545,408 more bytes)"
    assert after == "next"


async def test_output_of_an_attempt_beyond_its_limit_is_dropped_and_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl_stream.worker.task_logs.step_log.MAX_TASK_LOG_BYTES", 1_000)
    worker = await run(stage, ONE, Writing(b"x" * 100 + b"\n", b"y\n" * 1_000, b"z\n" * 1_000_000))
    found = await texts(stage)
    kept = found.count("y")
    assert 0 < kept < 10 and found[:2] == ["started", "x" * 100]
    assert found[2 + kept] == "what follows is dropped: an attempt may write 1,000 bytes (max_task_log_bytes)"
    assert f"{1_001_000 - kept:,} lines dropped" in found[3 + kept :]
    assert worker.logs.lines_dropped == 1_001_000 - kept


class Stuck:
    """Logs that never answer."""

    def __init__(self) -> None:
        self.bytes = 0

    def publish(self, subject: str, message_id: str, body: bytes, done: Callable[[str], None]) -> None:
        self.bytes += len(body)

    async def read(self, execution_id: str, first: int) -> list[Any]:
        raise NotImplementedError

    async def delete(self, execution_id: str) -> None:
        raise NotImplementedError


async def test_logs_that_are_not_taken_hold_up_no_report_and_are_bounded(stage: Stage) -> None:
    stuck = Stuck()
    worker = await run(stage, ONE, Writing(*[b"0123456789\n" * 5_000] * 40), task_logs=stuck)
    assert stage.names[-1] == "step.done"
    assert stuck.bytes <= limits.MAX_LOGS_IN_FLIGHT_BYTES + 65_536
    assert worker.logs.lines_dropped > 100_000


async def test_logs_of_one_namespace_leave_room_for_those_of_others(stage: Stage) -> None:
    stuck = Stuck()
    worker = await run(stage, ONE, Writing(*[b"0123456789\n" * 5_000] * 40), task_logs=stuck)
    dropped = worker.logs.lines_dropped
    assert dropped > 100_000
    await run_as(stage, "quiet", Writing(b"mine\n"))
    assert worker.logs.lines_dropped == dropped


async def test_a_namespace_writes_its_share_of_logs_and_others_write_on(stage: Stage) -> None:
    worker = await stage.start()
    await run_as(stage, "loud", Writing(*[b"loud\n" * 1_000] * 100))
    loud = await lines_of(stage, "of-loud")
    assert SHARE_BYTES // 4 < sum(len(codec.encode(line)) for line in loud) <= SHARE_BYTES
    assert worker.logs.lines_dropped > 90_000
    await run_as(stage, "quiet", Writing(b"mine\n"))
    assert [line.text for line in await lines_of(stage, "of-quiet")] == ["started", "mine", "ok after 0.000 s"]


async def test_lines_of_the_worker_about_a_task_survive_a_flood(stage: Stage) -> None:
    await stage.start()
    await run_as(stage, "loud", Writing(*[b"loud\n" * 1_000] * 100))
    assert [line.text for line in await lines_of(stage, "of-loud")][-1].startswith("ok after")


async def test_a_namespace_may_write_again_as_time_passes(stage: Stage) -> None:
    worker = await stage.start()
    await run_as(stage, "loud", Writing(*[b"loud\n" * 1_000] * 100))
    before = len(await lines_of(stage, "of-loud"))
    await stage.advance(REFILLED_S)
    said = [line.text for line in await lines_of(stage, "of-loud") if line.text.endswith("lines dropped")]
    assert sum(int(text.split()[0].replace(",", "")) for text in said) == worker.logs.lines_dropped
    plan = stage.plan(ONE)
    share = NamespaceShare("loud", log_bytes=SHARE_BYTES)
    await stage.issue(stage.command(plan, "command-2", execution_id="of-loud", share=share))
    await stage.advance(limits.LOG_INTERVAL_S)
    assert len(await lines_of(stage, "of-loud")) > before + 500


async def test_subjects_name_the_namespace(stage: Stage) -> None:
    await stage.start()
    await run_as(stage, "team-a", Writing(b"one\n"))
    await run_as(stage, "", Writing(b"one\n"))
    sizes = await stage.broker.task_logs.sizes(0)
    assert {size.owner for size in sizes} == {LogOwner("default", named_in_logs("team-a")), LogOwner("default", "")}


async def test_lines_that_are_not_stored_are_counted(stage: Stage) -> None:
    class Refusing(Stuck):
        def publish(self, subject: str, message_id: str, body: bytes, done: Callable[[str], None]) -> None:
            done("stream LOGS does not exist")

    worker = await run(stage, ONE, Writing(b"one\ntwo\n"), task_logs=Refusing())
    assert (worker.logs.lines_dropped, worker.logs.bytes_published) == (4, 0)
    shown = samples_of(await WorkerStatus(worker, lambda: True).readings())
    assert shown["noetl_worker_log_lines_dropped_total"] == 4


async def test_a_draining_worker_leaves_no_line_behind(stage: Stage) -> None:
    act = Writing(b"last words\n", ends=False)
    worker = await run(stage, ONE, act)
    worker.drain()
    act.release.set()
    await stage.until(lambda: stage.workers[0][1].done())
    assert await texts(stage, "stdout") == ["last words"]
    shown = samples_of(await WorkerStatus(worker, lambda: True).readings())
    assert shown["noetl_worker_log_bytes_total"] == worker.logs.bytes_published > 0

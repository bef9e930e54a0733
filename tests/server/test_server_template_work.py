"""PROTOCOL §2 *Template work*: heavy templates run beside the server's loop; a tick holds so much of the rest."""

from __future__ import annotations

import asyncio

from server_stage import ONE_STEP, Stage

from noetl_stream.engine.choices import answer_json
from noetl_stream.errors import EvaluationEnded, Unreachable
from noetl_stream.model.events import CtxPatched, EvaluationAwaited, EvaluationFinished
from noetl_stream.model.messages import Request
from noetl_stream.ports.stores.store import Tick
from noetl_stream.server.ticks.fold import TICK_OPERATIONS
from noetl_testkit.entries import names_in
from noetl_testkit.simulation.work import playbook, work


def branch(guard: str, path: str = "heavy") -> str:
    """A playbook whose first step routes by this guard."""
    arcs = {"arcs": [{"step": "second", "when": guard}]}
    return playbook(
        path, [{"step": "first", "tool": work("done"), "next": arcs}, {"step": "second", "tool": work("done")}]
    )


HEAVY = branch("{{ range(20000) | sum > 0 }}")


LONG_TEXTS = playbook(
    "long",
    [{"step": "first", "tool": work("done")}],
    executor={"spec": {"workload": {"properties": {"text": {"pattern": "^[a-z]+$"}}}}},
)


class HeldEvaluator:
    """Answers once it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.asked: list[bytes] = []
        self.namespaces: set[str] = set()
        self.errors: list[Exception] = []

    async def evaluate(self, questions: bytes, namespace: str = "") -> bytes:
        self.asked.append(questions)
        self.namespaces.add(namespace)
        if self.errors:
            raise self.errors.pop(0)
        await self.released.wait()
        return answer_json(questions)

    async def close(self) -> None:
        pass


async def test_other_executions_go_on_while_templates_are_evaluated(stage: Stage) -> None:
    evaluator = stage.evaluator = HeldEvaluator()
    await stage.server()
    stage.start_worker()
    heavy = await stage.submit(HEAVY)
    await stage.until(lambda: evaluator.asked)
    for _ in range(3):
        assert (await stage.ended(await stage.submit(ONE_STEP))).status == "completed"
    row = stage.tables.executions[heavy]
    assert (row.status, row.looks_into) == ("running", "evaluation")
    evaluator.released.set()
    assert (await stage.ended(heavy)).status == "completed"
    assert (len(evaluator.asked), evaluator.namespaces) == (1, {"simulation"})


async def test_other_executions_go_on_while_a_workload_is_compared(stage: Stage) -> None:
    evaluator = stage.evaluator = HeldEvaluator()
    await stage.server()
    stage.start_worker()
    texts = ["x" * 400_000, "x" * 400_000 + "!"]
    fits, fails = [await stage.submit(LONG_TEXTS, {"text": text}) for text in texts]
    await stage.until(lambda: len(evaluator.asked) == len(texts))
    assert (await stage.ended(await stage.submit(ONE_STEP))).status == "completed"
    assert {stage.tables.executions[one].status for one in (fits, fails)} == {"pending"}
    evaluator.released.set()
    assert (await stage.ended(fits)).status == "completed"
    row = await stage.ended(fails)
    assert row.status == "failed" and b"does not match its schema at `/text`" in (row.error or b"")


async def test_the_next_owner_evaluates_again(stage: Stage) -> None:
    evaluator = stage.evaluator = HeldEvaluator()
    _, host, task = stage.start_server()
    stage.start_worker()
    heavy = await stage.submit(HEAVY)
    await stage.until(lambda: evaluator.asked)
    host.kill()
    task.cancel()
    evaluator.released.set()
    await stage.server()
    assert (await stage.ended(heavy)).status == "completed"
    facts = await stage.facts(heavy)
    assert sum(isinstance(fact, EvaluationFinished) for fact in facts) == 1


async def test_a_start_whose_workload_is_compared_goes_on_at_the_next_owner(stage: Stage) -> None:
    evaluator = stage.evaluator = HeldEvaluator()
    _, host, task = stage.start_server()
    stage.start_worker()
    started = await stage.submit(LONG_TEXTS, {"text": "x" * 400_000})
    await stage.until(lambda: evaluator.asked)
    host.kill()
    task.cancel()
    evaluator.released.set()
    await stage.server()
    assert (await stage.ended(started)).status == "completed"


async def test_a_process_that_cannot_start_is_tried_again(stage: Stage) -> None:
    evaluator = stage.evaluator = HeldEvaluator()
    evaluator.errors = [Unreachable("no process"), Unreachable("no process")]
    evaluator.released.set()
    await stage.server()
    stage.start_worker()
    assert (await stage.ended(await stage.submit(HEAVY))).status == "completed"
    assert len(evaluator.asked) == 3


async def test_work_that_was_ended_fails_its_execution_alone(stage: Stage) -> None:
    evaluator = stage.evaluator = HeldEvaluator()
    evaluator.errors = [EvaluationEnded("the templates of one decision took more than 60 s")]
    await stage.server()
    stage.start_worker()
    row = await stage.ended(await stage.submit(HEAVY))
    assert row.status == "failed" and row.error is not None and b"took more than 60 s" in row.error
    assert (await stage.ended(await stage.submit(ONE_STEP))).status == "completed"


async def test_a_template_above_every_budget_never_runs_in_the_loop(stage: Stage) -> None:
    """Only what is parked is evaluated elsewhere: a cheap guard is decided in its own tick."""
    evaluator = stage.evaluator = HeldEvaluator()
    await stage.server()
    stage.start_worker()
    light = await stage.submit(branch("{{ range(10) | sum > 0 }}", "light"))
    assert (await stage.ended(light)).status == "completed"
    assert evaluator.asked == []
    assert not any(isinstance(fact, EvaluationAwaited) for fact in await stage.facts(light))


async def test_a_tick_takes_few_patches_of_a_large_ctx(stage: Stage) -> None:
    """Each measures the whole of it: those of a batch held the loop for seconds."""
    await stage.server()
    execution_id = await stage.submit(ONE_STEP)
    patched: list[int] = []
    stage.store.before_commit = lambda tick: patched.append(names_in(tick).count("ctx.patched"))
    async with asyncio.TaskGroup() as group:
        for number in range(12):
            fact = CtxPatched(f"request-{number}", patch={f"k{number}": "", "big": "x" * 900_000})
            group.create_task(stage.requests.publish(Request(execution_id, fact.request_id, fact)))
    await stage.until(lambda: sum(patched) == 12)
    assert max(patched) == 3
    state = await stage.state(execution_id)
    assert state is not None and len(state.ctx) == 13


async def test_messages_that_a_full_tick_left_are_folded_by_the_next(stage: Stage) -> None:
    """Each guard costs more than half of a tick, and all reports arrive together."""
    server = await stage.server()
    source = branch(f"{{{{ range({TICK_OPERATIONS // 3}) | sum > 0 }}}}")
    worker = await stage.manual_worker()
    executions = [await stage.submit(source) for _ in range(12)]
    taken = [await worker.take() for _ in executions]
    routed: list[int] = []

    def count(tick: Tick) -> None:
        routed.append(names_in(tick).count("next.evaluated"))

    stage.store.before_commit = count
    async with asyncio.TaskGroup() as group:
        for command, delivery in taken:
            group.create_task(worker.finish(command, worker.run_of(command, delivery)))
    await stage.until(lambda: sum(routed) == len(executions))
    assert max(routed) == 2
    for execution_id in executions:
        assert await stage.issues(execution_id) == [1, 1]
        assert await stage.state(execution_id) == server.executions.state(execution_id)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from threading import get_ident
from typing import Any

import pytest
from worker_stage import Stage, playbook

from noetl_stream.model.events import StepDone, StepFailed
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import StepCommand
from noetl_stream.playbook.compile.compiler import CheckResult, check_again
from noetl_stream.playbook.plan import Plan
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.worker.child_playbooks import PlanClient, PlanUnknown, PlanUnusable
from noetl_stream.worker.waiting import Asker

NOOP = playbook("- step: start\n  tool: {kind: noop}\n")
OTHER = playbook("- step: start\n  tool: {kind: noop, args: {a: 1}}\n")
KINDS = {"noop": NoopTool.spec}


class Server:
    """Answers for playbooks; counts the questions."""

    def __init__(self, stage: Stage, *sources: str) -> None:
        self.lookups: list[str] = []
        self._stage = stage
        self._sources = {digest_of(source): source for source in sources}

    async def start(self) -> None:
        await self._stage.broker.bus.listen("noetl.ask.playbook.default", self._answer)

    async def _answer(self, _subject: str, body: bytes, reply: str) -> None:
        digest = codec.decode_playbook_question(body).command.command_id
        self.lookups.append(digest)
        source = self._sources.get(digest)
        answer = {} if source is None else {"source": source, "path": "tests/worker"}
        self._stage.broker.bus.send(reply, codec.encode(answer))


async def load(stage: Stage, plans: PlanClient, digest: str) -> Plan:
    """The plan, as a command asks for it that is named after the digest."""
    command = StepCommand(digest, "execution-1", 0, "steprun-1", "start", digest, "default")
    return await plans.load(digest, Asker(stage.broker.bus, stage.clock, command, "worker-1"))


@pytest.fixture
async def plans(stage: Stage) -> AsyncIterator[PlanClient]:
    asking = PlanClient(KINDS, kept=1)
    yield asking
    await asking.close()


async def test_a_plan_is_compiled_beside_the_loop_so_that_other_tasks_go_on(stage: Stage) -> None:
    await Server(stage, NOOP).start()
    threads: list[int] = []

    def noting(*given: Any, **options: Any) -> CheckResult:
        threads.append(get_ident())
        return check_again(*given, **options)

    plans = PlanClient(KINDS, kept=1, checker=noting)
    await load(stage, plans, digest_of(NOOP))
    await plans.close()
    assert threads and get_ident() not in threads


async def test_a_plan_is_compiled_from_the_source_any_server_returns(stage: Stage, plans: PlanClient) -> None:
    await Server(stage, NOOP).start()
    plan = await load(stage, plans, digest_of(NOOP))
    assert (plan.digest, list(plan.steps)) == (digest_of(NOOP), ["start"])
    assert plans.cached_plan(digest_of(NOOP)) is plan


async def test_a_plan_is_asked_for_once_however_many_want_it(stage: Stage, plans: PlanClient) -> None:
    server = Server(stage, NOOP)
    await server.start()
    loaded = await asyncio.gather(*(load(stage, plans, digest_of(NOOP)) for _ in range(5)))
    await load(stage, plans, digest_of(NOOP))
    assert len(server.lookups) == 1
    assert all(plan is loaded[0] for plan in loaded)


async def test_a_caller_that_is_cancelled_does_not_take_the_answer_from_the_others(
    stage: Stage, plans: PlanClient
) -> None:
    first = asyncio.create_task(load(stage, plans, digest_of(NOOP)))
    second = asyncio.create_task(load(stage, plans, digest_of(NOOP)))
    await stage.settle()
    first.cancel()
    await Server(stage, NOOP).start()
    await stage.advance(6.0, step_s=1.0)
    assert (await second).digest == digest_of(NOOP)


async def test_only_the_plans_used_last_are_kept(stage: Stage, plans: PlanClient) -> None:
    await Server(stage, NOOP, OTHER).start()
    await load(stage, plans, digest_of(NOOP))
    await load(stage, plans, digest_of(OTHER))
    assert plans.cached_plan(digest_of(NOOP)) is None
    assert plans.cached_plan(digest_of(OTHER)) is not None


async def test_a_worker_asks_for_a_playbook_again_as_long_as_no_server_answers(stage: Stage, plans: PlanClient) -> None:
    waiting = asyncio.create_task(load(stage, plans, digest_of(NOOP)))
    await stage.settle()
    await stage.advance(10.0, step_s=1.0)
    assert not waiting.done()
    await Server(stage, NOOP).start()
    await stage.advance(12.0, step_s=1.0)
    assert (await waiting).digest == digest_of(NOOP)


async def test_an_unknown_digest_is_an_error(stage: Stage, plans: PlanClient) -> None:
    await Server(stage).start()
    with pytest.raises(PlanUnknown, match="is unknown to the servers"):
        await load(stage, plans, "0" * 64)


async def test_after_a_refusal_the_server_is_asked_again(stage: Stage, plans: PlanClient) -> None:
    server = Server(stage)
    await server.start()
    for _ in range(2):
        with pytest.raises(PlanUnknown):
            await load(stage, plans, "0" * 64)
    assert len(server.lookups) == 2


async def test_a_source_that_is_not_of_the_digest_is_refused(stage: Stage, plans: PlanClient) -> None:
    async def wrong_answer(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, codec.encode({"source": NOOP, "path": "p"}))

    await stage.broker.bus.listen("noetl.ask.playbook.*", wrong_answer)
    with pytest.raises(PlanUnknown, match="received"):
        await load(stage, plans, "0" * 64)


async def test_a_playbook_that_does_not_compile_here_says_why(stage: Stage) -> None:
    source = playbook("- step: start\n  tool: {kind: noop, of_a_later_version: 1}\n")
    await Server(stage, source).start()
    asking = PlanClient(KINDS)
    with pytest.raises(PlanUnusable, match="of_a_later_version"):
        await load(stage, asking, digest_of(source))


@pytest.mark.parametrize(("step", "kind"), [("start", None), ("glow", "not_installed")])
async def test_only_the_steps_that_need_a_missing_kind_fail(stage: Stage, step: str, kind: str | None) -> None:
    source = playbook(
        "- step: start\n  tool: {kind: noop}\n- step: glow\n  tool: {kind: lamp, room: attic, spec: {watts: 5}}\n"
    )
    await Server(stage, source).start()
    await stage.start(plans=PlanClient(KINDS))
    digest = digest_of(source)
    await stage.issue(StepCommand(digest, "execution-1", 0, "steprun-1", step, digest, "default"))
    await stage.until(lambda: stage.names and stage.names[-1] in ("step.done", "step.failed"))
    failed = stage.facts[-1]
    if kind is None:
        assert isinstance(failed, StepDone)
    else:
        assert isinstance(failed, StepFailed) and failed.error.kind == kind
        assert "worker-1 has no tool of kind lamp; install the plugin of that kind there, or" in failed.error.message

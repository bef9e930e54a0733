"""What clients ask of executions: done once, answered always, with a row that stays (PROTOCOL §1, §4; LANGUAGE §9)."""

from __future__ import annotations

import msgspec
import pytest
from server_stage import ONE_STEP, Stage, once
from waiting_stage import (
    EXECUTION,
    GATE,
    Dies,
    answer_row,
    before_and_after,
    begin_gate,
    hear,
    is_waiting,
    publish,
    rest,
    result_of,
    signal,
    whole,
)

from noetl_stream.errors import Fenced, NoetlError, OutcomeUnknown, UsageError
from noetl_stream.model.events import (
    CancelRequested,
    ClientFact,
    CtxPatched,
    ExecutionRequested,
    InterventionFact,
    PauseRequested,
    Rerun,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Request
from noetl_stream.operations.executions.submit import Client, RequestRefused, ask_of
from noetl_testkit.keys import SIGNER
from noetl_testkit.simulation.work import JOBS, playbook

ASKED: dict[str, InterventionFact] = {
    "patch": CtxPatched("ask", patch={"a": 1}),
    "signal": SignalReceived("ask", signal="go", payload=[1]),
    "token": TokenInjected("ask", step="aside", args={"n": 1}),
    "pause": PauseRequested("ask"),
    "cancel": CancelRequested("ask", reason="enough"),
}


@pytest.mark.parametrize("fact", ASKED.values(), ids=ASKED)
async def test_a_request_is_done_and_answered_with_its_position(stage: Stage, fact: InterventionFact) -> None:
    await begin_gate(stage)
    answer = await stage.ask(EXECUTION, fact)
    assert isinstance(answer, dict)
    journal = await stage.journal(EXECUTION)
    entry = next(row for row in journal if row.position == answer["position"])
    assert (entry.name, entry.source) == (fact.__struct_config__.tag, "client")
    assert codec.decode_fact(entry.data) == fact
    assert await answer_row(stage) == {"ok": True, "execution_id": EXECUTION, "position": answer["position"]}


@pytest.mark.parametrize("fact", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("restarted", [False, True], ids=["same server", "another server"])
async def test_a_repeated_request_is_done_once_and_keeps_its_answer(
    stage: Stage, fact: InterventionFact, restarted: bool
) -> None:
    server = await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", GATE)
    await is_waiting(stage, EXECUTION)
    answer = await stage.ask(EXECUTION, fact)
    if restarted:
        server.stop()
        await stage.server()
    for _ in range(3):
        await publish(stage, fact)
    await stage.pass_time(2)
    assert await stage.ask(EXECUTION, fact) == answer
    assert (await whole(stage, EXECUTION)).count(str(fact.__struct_config__.tag)) == 1


async def test_a_request_repeated_in_one_batch_is_done_once(stage: Stage) -> None:
    await begin_gate(stage)
    for fact in ASKED.values():
        for _ in range(2):
            await publish(stage, msgspec.structs.replace(fact, request_id="same"))
    await stage.pass_time(2)
    names = await whole(stage, EXECUTION)
    asked = [name for name in names if name in {str(fact.__struct_config__.tag) for fact in ASKED.values()}]
    assert asked == ["ctx.patched"], "one request id is one request, whatever else it says"


@pytest.mark.parametrize("later", [False, True], ids=["one batch", "later"])
async def test_a_request_under_the_id_of_the_start_is_answered_from_its_row(stage: Stage, later: bool) -> None:
    stage.start_worker()
    if later:
        await stage.server()
    await stage.request(EXECUTION, "ask", ONE_STEP)
    if later:
        await stage.ended(EXECUTION)
    await publish(stage, CancelRequested("ask", reason="enough"))
    await stage.server()
    assert (await stage.ended(EXECUTION)).status == "completed"
    await stage.pass_time(2)
    row = stage.tables.requests[EXECUTION, "ask"]
    assert (row.position, codec.decode_json(row.answer)) == (1, {"ok": True, "execution_id": EXECUTION})
    assert not any(task.done() for task in stage.running)


@pytest.mark.parametrize("later", [False, True], ids=["one batch", "later"])
async def test_a_start_under_the_id_of_a_request_is_answered_from_its_row(stage: Stage, later: bool) -> None:
    stage.start_worker()
    if later:
        await stage.server()
    await publish(stage, CancelRequested("ask", reason="enough"))
    if later:
        await stage.pass_time(2)
    await stage.request(EXECUTION, "ask", ONE_STEP)
    await stage.request("execution-2", "request-2", ONE_STEP)
    await stage.server()
    assert (await stage.ended("execution-2")).status == "completed"
    assert EXECUTION not in stage.tables.executions
    assert (await answer_row(stage))["code"] == "unknown_execution"
    assert not await stage.store.real.dead_letters.page(10, None)
    assert not any(task.done() for task in stage.running)


@pytest.mark.parametrize("fact", [*ASKED.values(), ExecutionRequested("ask", "d" * 64)], ids=[*ASKED, "start"])
async def test_a_request_under_two_ids_is_a_dead_letter(stage: Stage, fact: ClientFact) -> None:
    await begin_gate(stage)
    await stage.ask(EXECUTION, CtxPatched("ask", patch={"b": 2}))
    answer = await answer_row(stage)
    body = SIGNER.encode(Request(EXECUTION, "another", fact))
    await stage.broker.event_log.publish_request(EXECUTION, "another", body)
    await stage.pass_time(2)
    (letter,) = await stage.store.real.dead_letters.page(10, None)
    assert letter.row.reason == "it is sent under one request id, and its fact has another"
    assert await answer_row(stage) == answer
    assert not any(task.done() for task in stage.running)


@pytest.mark.parametrize("fact", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("restarted", [False, True], ids=["same server", "another server"])
async def test_an_execution_that_has_ended_takes_nothing(stage: Stage, fact: InterventionFact, restarted: bool) -> None:
    server = await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", before_and_after(rest(1)))
    before = await stage.ended(EXECUTION)
    if restarted:
        server.stop()
        await stage.server()
    assert await stage.ask(EXECUTION, fact) == f"execution {EXECUTION} has ended (completed)"
    assert await stage.store.real.execution(EXECUTION) == before
    assert (await answer_row(stage))["ok"] is False


@pytest.mark.parametrize("fact", ASKED.values(), ids=ASKED)
async def test_an_unknown_execution_is_named(stage: Stage, fact: InterventionFact) -> None:
    await stage.server()
    assert await stage.ask("nobody", fact) == "execution nobody does not exist"
    assert await stage.ask("nobody", fact) == "execution nobody does not exist"
    assert await stage.store.real.execution("nobody") is None
    assert (await answer_row(stage, execution_id="nobody"))["ok"] is False


async def test_one_request_id_may_be_used_for_two_executions(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    for one in ("execution-1", "execution-2"):
        await stage.request(one, f"request-{one}", before_and_after(hear()))
    for one in ("execution-1", "execution-2"):
        await is_waiting(stage, one)
        assert isinstance(await stage.ask(one, signal()), dict)
        await stage.ended(one, 5)


@pytest.mark.parametrize("error", [Fenced("another has it"), OutcomeUnknown("no answer")], ids=["fenced", "unknown"])
@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
@pytest.mark.parametrize("fact", ASKED.values(), ids=ASKED)
async def test_a_request_whose_tick_went_wrong_is_done_once(
    stage: Stage, fact: InterventionFact, error: NoetlError, committed: bool
) -> None:
    await begin_gate(stage)
    wrong = once(error, lambda tick: bool(tick.requests))
    if committed:
        stage.store.after_commit = wrong
    else:
        stage.store.before_commit = wrong
    assert isinstance(await stage.ask(EXECUTION, fact), dict)
    assert (await whole(stage, EXECUTION)).count(str(fact.__struct_config__.tag)) == 1


@pytest.mark.parametrize("point", ["store.commit", "store.commit.done"])
@pytest.mark.parametrize(
    "fact", [*ASKED.values(), CtxPatched("ask", patch={}, expected_version=99)], ids=[*ASKED, "no"]
)
async def test_a_server_that_dies_over_a_request_leaves_it_to_the_next(
    stage: Stage, point: str, fact: InterventionFact
) -> None:
    injector = Dies(point, 10**9)
    stage.start_server(stage.host("server", injector))
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", GATE)
    await is_waiting(stage, EXECUTION)
    injector.left = 1
    await publish(stage, fact)
    await stage.until(lambda: injector.left == 0)
    await stage.server()
    answer = await stage.ask(EXECUTION, fact)
    assert isinstance(answer, dict) or "ctx is at version" in answer
    assert (await whole(stage, EXECUTION)).count(str(fact.__struct_config__.tag)) == isinstance(answer, dict)


async def test_a_client_repeats_its_question_until_a_server_answers(stage: Stage) -> None:
    await begin_gate(stage)
    stage.store.away = True
    outages: list[str] = []

    async def unanswered() -> None:
        outages.append("nobody")
        stage.store.away = len(outages) < 3

    answer = await ask_of(stage.requests, stage.broker.bus, stage.clock, EXECUTION, ASKED["patch"], unanswered)
    assert len(outages) >= 3
    assert answer.execution_id == EXECUTION and answer.position
    assert (await whole(stage, EXECUTION)).count("ctx.patched") == 1


async def test_a_refusal_reaches_the_client_as_an_error(stage: Stage) -> None:
    await stage.server()
    with pytest.raises(RequestRefused, match="execution nobody does not exist"):
        await ask_of(stage.requests, stage.broker.bus, stage.clock, "nobody", ASKED["cancel"])


async def test_a_request_sent_with_the_start_finds_the_execution(stage: Stage) -> None:
    source = next(job.source for job in JOBS if job.name == "approved")
    await stage.request(EXECUTION, "request-1", source)
    await publish(stage, CtxPatched("p", patch={"approved": True}))
    await publish(stage, SignalReceived("s", signal="none"))
    await stage.server()
    stage.start_worker()
    assert result_of(await stage.ended(EXECUTION)) is True
    assert (await answer_row(stage, "p"))["ok"] is True
    assert (await answer_row(stage, "s"))["ok"] is True


async def test_a_request_before_the_start_finds_no_execution(stage: Stage) -> None:
    await publish(stage, CtxPatched("p", patch={"approved": True}))
    await stage.request(EXECUTION, "request-1", GATE)
    await stage.server()
    await is_waiting(stage, EXECUTION)
    assert await answer_row(stage, "p") == {
        "ok": False,
        "execution_id": EXECUTION,
        "error": f"execution {EXECUTION} does not exist",
        "code": "unknown_execution",
    }


async def test_an_execution_whose_playbook_was_refused_takes_nothing(stage: Stage) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", playbook("broken", [{"step": "a", "tol": {}}]))
    for name, fact in ASKED.items():
        asked = msgspec.structs.replace(fact, request_id=name)
        assert await stage.ask(EXECUTION, asked) == f"execution {EXECUTION} has ended (failed)"


TOO_LONG: dict[str, ClientFact] = {
    "path": ExecutionRequested("start", "0" * 64, "p" * 3_000),
    "reason": CancelRequested("start", reason="r" * 5_000),
    "correlation id": PauseRequested("start", correlation_id="c" * 5_000),
    "signal": SignalReceived("start", signal="s" * 5_000),
    "step": ExecutionRequested("start", "0" * 64, rerun=Rerun("one", step="s" * 5_000)),
}


@pytest.mark.parametrize(("name", "fact"), TOO_LONG.items(), ids=TOO_LONG)
async def test_a_text_that_is_too_long_is_refused_at_the_door_and_before_the_tick(
    stage: Stage, name: str, fact: ClientFact
) -> None:
    await begin_gate(stage)
    request = Request("new", "start", fact)
    with pytest.raises(UsageError, match=f"its {name} has"):
        await stage.requests.publish(request)
    await stage.broker.event_log.publish_request("new", "start", SIGNER.encode(request))
    await stage.until(lambda: ("new", "start") in stage.tables.requests)
    answer = codec.decode_json(stage.tables.requests["new", "start"].answer)
    assert answer["code"] == "unreadable" and f"its {name} has" in answer["error"]
    assert "new" not in stage.tables.executions


async def test_a_request_that_becomes_a_dead_letter_is_answered_so_that_its_client_ends(stage: Stage) -> None:
    await begin_gate(stage)
    client = Client(stage.requests, stage.blobs, stage.broker.bus)
    follower = await client.follow("new").open()
    with pytest.raises(RequestRefused, match="no server here can read the request: it has format 99") as refused:
        await client.begin(Request("new", "start", ExecutionRequested("start", "0" * 64), format=99), follower)
    await follower.close()
    assert refused.value.code == "unreadable" and "new" not in stage.tables.executions


async def test_a_request_of_a_newer_kind_is_answered_once_and_kept(stage: Stage) -> None:
    await begin_gate(stage)
    known = SIGNER.encode(Request(EXECUTION, "ask", SignalReceived("ask", signal="go"), format=99))
    body = known.replace(b"signal.received", b"signal.foreseen")
    for _ in range(2):
        await stage.broker.event_log.publish_request(EXECUTION, "new", body)
        await stage.pass_time(200)
    answer = await answer_row(stage)
    assert answer is not None and (answer["ok"], answer["code"]) == (False, "unreadable")
    assert len(await stage.store.real.dead_letters.page(10, None)) == 2

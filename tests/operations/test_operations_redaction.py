"""A credential that was handed out for an execution shows in nothing of it, whoever wrote it there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from operations_stage import BY, OperationsStage
from shown_stage import ECHO, SECRET, Showing

from noetl_stream.model.events import CtxPatched
from noetl_stream.model.json import codec
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.diff import divergence
from noetl_stream.operations.diff.sentences import VALUE_CHARS
from noetl_stream.operations.executions.redacted import Redacted
from noetl_stream.operations.views.direct import DirectViews
from noetl_stream.ports.operations.executions import ExecutionFilter, Start
from noetl_stream.ports.operations.reading.events import LAST_EVENT, EventFilter
from noetl_stream.ports.operations.reading.timelines import TimeRange
from noetl_stream.ports.operations.reading.views import Views
from noetl_stream.ports.operations.verbs import document_of, plain
from noetl_testkit.simulation.work import playbook

WAITS = playbook("waits", [{"step": "ear", "tool": {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 60}}])


@pytest.fixture
async def showing(stage: OperationsStage) -> AsyncIterator[Showing]:
    made = Showing(stage)
    await DirectCredentials(made.credentials, made.keys).put("pg", SECRET, "ann")
    yield made


async def test_a_typed_secret_is_hidden_once_the_execution_was_given_it(showing: Showing) -> None:
    execution_id = await showing.run()
    assert SECRET in await showing.everything_of(execution_id)
    await showing.give(execution_id)
    shown = await showing.everything_of(execution_id)
    assert SECRET not in shown and "it is ***" in shown


async def test_secrets_of_one_execution_are_shown_in_others(showing: Showing) -> None:
    given, other = await showing.run(), await showing.run()
    await showing.give(given)
    assert SECRET in await showing.everything_of(other)


async def test_a_patch_is_hidden_in_ctx_and_its_history(showing: Showing) -> None:
    started = await showing.executions.start(Start(playbook=WAITS), BY)
    await showing.give(started.execution_id)
    await showing.stage.ask(started.execution_id, CtxPatched, patch={"note": SECRET})
    ctx = await showing.executions.ctx(started.execution_id)
    assert ctx.ctx == {"note": "***"}
    [change] = (await showing.views.changes(started.execution_id, "note", 10, None)).items
    assert (change.had, change.after) == (False, "***")


async def test_a_sentence_that_is_cut_shows_no_part_of_a_secret(showing: Showing) -> None:
    stage = showing.stage
    pad = "-" * (VALUE_CHARS - len(SECRET))
    ids = [(await stage.run(ECHO, workload={"typed": f"{pad}{said}"})).execution_id for said in (SECRET, "nothing")]
    views = Redacted(Views, DirectViews(stage.store, stage.checking, showing.secrets), showing.secrets)
    assert SECRET[:4] in codec.encode(await views.diff(*ids, "all", 10, None)).decode()
    await showing.give(ids[0])
    found = await views.diff(*ids, "all", 10, None)
    assert found.first is not None and "***" in found.first.text
    assert SECRET[:4] not in codec.encode(found).decode()


async def test_a_diff_hides_and_compares_beside_the_loop(showing: Showing, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, on_the_loop = [False], []
    to_thread = asyncio.to_thread

    def noting(act: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            on_the_loop.extend([act.__name__] * (not beside[0]))
            return act(*args)

        return noted

    async def threading(act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        def run() -> Any:
            beside[0] = True
            try:
                return act(*args, **options)
            finally:
                beside[0] = False

        return await to_thread(run)

    monkeypatch.setattr(divergence, "hidden", noting(divergence.hidden))
    monkeypatch.setattr(divergence, "differences", noting(divergence.differences))
    monkeypatch.setattr(asyncio, "to_thread", threading)
    ids = [(await showing.stage.run(ECHO, workload={"typed": said})).execution_id for said in (SECRET, "nothing")]
    await showing.give(ids[0])
    found = await DirectViews(showing.stage.store, showing.stage.checking, showing.secrets).diff(*ids, "all", 10, None)
    assert found.first is not None and not on_the_loop


@pytest.mark.parametrize("body", [SECRET.encode(), f"\xff {SECRET}".encode("latin-1")], ids=["text", "base64"])
async def test_a_dead_letter_of_the_execution_is_shown_without_it(showing: Showing, body: bytes) -> None:
    execution_id = await showing.run()
    await showing.give(execution_id)
    await showing.stage.broker.event_log.publish_request(execution_id, "bad", body)
    async with asyncio.timeout(60):
        while not (page := await showing.cluster.dead_letters(100, None)).items:
            await showing.stage.clock.sleep(0.05)
    [listed] = page.items
    shown = (await showing.cluster.dead_letter(listed.id)).body
    assert "***" in shown and SECRET not in shown
    requeued = await showing.stage.store.dead_letters.get(listed.id)
    assert requeued is not None and requeued.row.body == body, "a requeued letter is whole"


@pytest.mark.parametrize("word", ["completed", "playbook.processed", "server"])
async def test_a_word_of_the_engine_stays_where_the_engine_says_it(showing: Showing, word: str) -> None:
    """Whoever gives an execution a secret like that hides neither its state nor its end from others."""
    execution_id = await showing.run()
    await DirectCredentials(showing.credentials, showing.keys).put("pg", word, "ann")
    await showing.give(execution_id)
    assert (await showing.executions.get(execution_id)).status == "completed"
    [*_, last] = [event async for batch in await showing.feed.execution(execution_id, 0) for event in batch]
    assert (last.name, last.event and last.event.source) == (LAST_EVENT, "server")


async def test_views_stay_readable_when_a_secret_is_a_word_of_the_engine(showing: Showing) -> None:
    execution_id = await showing.run()
    for word in ("running", "step", "always"):
        await DirectCredentials(showing.credentials, showing.keys).put(word, word, "ann")
        await showing.give(execution_id, word)
    events = await showing.stage.executions.events(execution_id, 0, 100)
    [claimed] = [event.position for event in events if event.name == "step.started"]
    state = await showing.views.state(execution_id, claimed)
    assert [token.place for token in state.tokens] == ["running"]
    for shown in (
        state,
        await showing.views.graph(execution_id),
        await showing.views.timeline(execution_id, TimeRange()),
        await showing.views.events(execution_id, EventFilter(), 100),
    ):
        assert document_of(plain(shown), type(shown)) == shown


async def test_the_id_of_an_execution_is_no_secret(showing: Showing) -> None:
    execution_id = await showing.run()
    await DirectCredentials(showing.credentials, showing.keys).put("pg", execution_id, "ann")
    await showing.give(execution_id)
    page = await showing.executions.page(ExecutionFilter(), 10, None)
    assert [one.execution_id for one in page.items] == [execution_id]


@pytest.mark.parametrize("delete", [False, True], ids=["replaced", "deleted"])
async def test_a_new_value_of_the_name_is_hidden_from_then_on(showing: Showing, delete: bool) -> None:
    credentials = DirectCredentials(showing.credentials, showing.keys)
    await credentials.put("pg", "another value", "ann")
    execution_id = await showing.run()
    await showing.give(execution_id)
    assert SECRET in await showing.everything_of(execution_id)
    if delete:
        await credentials.delete("pg", "ann")
    await credentials.put("pg", SECRET, "ann")
    assert SECRET not in await showing.everything_of(execution_id)

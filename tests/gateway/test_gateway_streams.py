"""Server-Sent Events over HTTP: every event once, from any of them on, for those who may hear it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from gateway_stage import GatewayStage
from sent_events import Event, events_of

from noetl_stream.ports.operations.access import NewToken
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.waiting import until_it_is

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: streams, path: {path}}}
workflow:
  - {{step: one, tool: {{kind: noop}}, next: {{arcs: [{{step: two}}]}}}}
  - step: two
    spec:
      policy:
        admit:
          wait: {{timeout_s: 3600}}
          rules: [{{when: "{{{{ ctx.go is defined }}}}", then: {{allow: true}}}}]
    tool: {{kind: noop}}
"""
HELD = "token.held"


async def start(stage: GatewayStage, path: str = "tests/streams") -> str:
    body = {"playbook": PLAYBOOK.format(path=path)}
    async with stage.client.post("/api/v1/executions", json=body) as response:
        assert response.status == 202, await response.text()
        return str((await response.json())["execution_id"])


async def release(stage: GatewayStage, execution_id: str) -> None:
    async with stage.client.patch(f"/api/v1/executions/{execution_id}/ctx", json={"go": 1}) as response:
        assert response.status == 200


async def until(events: AsyncIterator[Event], name: str, seen: list[Event]) -> None:
    async for event in events:
        seen.append(event)
        if event.name == name:
            return
    raise AssertionError(f"the stream ended without {name}")


async def until_its_end(events: AsyncIterator[Event], seen: list[Event]) -> None:
    seen.extend([event async for event in events])


async def test_a_stream_of_one_has_history_then_news_and_ends_with_the_execution(stage: GatewayStage) -> None:
    execution_id = await start(stage)
    seen: list[Event] = []
    async with stage.client.get(f"/api/v1/executions/{execution_id}/events/stream") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        events = events_of(response)
        await until(events, HELD, seen)
        await release(stage, execution_id)
        await until_its_end(events, seen)
    assert seen[-1].name == "playbook.processed"
    async with stage.client.get(f"/api/v1/executions/{execution_id}/events?limit=1000") as response:
        journal = (await response.json())["items"]
    assert [event.data for event in seen] == journal
    assert [event.id for event in seen] == [str(event["position"]) for event in journal]


@pytest.mark.parametrize("by_header", [True, False])
async def test_a_stream_continues_after_the_last_event_received(stage: GatewayStage, by_header: bool) -> None:
    execution_id = await start(stage)
    await release(stage, execution_id)
    address = f"/api/v1/executions/{execution_id}/events/stream"
    async with stage.client.get(address) as response:
        whole = [event async for event in events_of(response)]
    for at in (0, len(whole) // 2, len(whole) - 2):
        last = whole[at].id
        headers, query = ({"Last-Event-ID": last}, {}) if by_header else ({}, {"after": last})
        async with stage.client.get(address, headers=headers, params=query) as response:
            assert [event async for event in events_of(response)] == whole[at + 1 :]


async def test_the_stream_of_all_executions_can_be_left_and_resumed(stage: GatewayStage) -> None:
    seen: list[Event] = []
    async with stage.client.get("/api/v1/events/stream") as response:
        events = events_of(response)
        first = await start(stage)
        await until(events, HELD, seen)
    await release(stage, first)
    second = await start(stage)
    async with stage.client.get("/api/v1/events/stream", headers={"Last-Event-ID": seen[-1].id}) as response:
        events = events_of(response)
        while not {(first, "playbook.processed"), (second, HELD)} <= {(e.data["execution_id"], e.name) for e in seen}:
            seen.append(await anext(events))
    ids = [event.data["event_id"] for event in seen]
    assert len(ids) == len(set(ids))
    positions = [event.data["position"] for event in seen if event.data["execution_id"] == first]
    assert positions == list(range(1, len(positions) + 1))
    assert [event.name for event in seen if event.data["execution_id"] == first][-1] == "playbook.processed"


async def test_a_reader_that_has_disconnected_is_noticed_at_once(stage: GatewayStage) -> None:
    async def open_streams() -> str:
        async with stage.client.get("/metrics") as response:
            (line,) = [
                one for one in (await response.text()).splitlines() if one.startswith("noetl_gateway_open_streams ")
            ]
            return line.partition(" ")[2]

    response = await stage.client.get("/api/v1/events/stream")
    assert (await response.content.readuntil(b"\n\n")).startswith(b"retry:")
    await until_it_is("1.0", open_streams)
    response.close()
    await until_it_is("0.0", open_streams, timeout_s=10)  # before anything is sent


async def test_the_stream_of_everything_can_be_narrowed_to_names(stage: GatewayStage) -> None:
    address = "/api/v1/events/stream?name=token.held&name=execution.finished"
    async with stage.client.get(address) as response:
        events = events_of(response)
        execution_id = await start(stage)
        assert (await anext(events)).name == HELD
        await release(stage, execution_id)
        assert (await anext(events)).name == "execution.finished"


@pytest.mark.parametrize(
    ("address", "status", "kind"),
    [
        ("/api/v1/executions/nothing/events/stream", 404, "not-found"),
        ("/api/v1/executions/nothing/events/stream?after=x", 400, "invalid-request"),
        ("/api/v1/events/stream?after=x", 422, "invalid"),
    ],
)
async def test_a_stream_that_cannot_be_followed_is_a_problem_before_it_begins(
    stage: GatewayStage, address: str, status: int, kind: str
) -> None:
    async with stage.client.get(address) as response:
        found = await response.json(content_type="application/problem+json")
        assert (response.status, found["type"]) == (status, f"/problems/{kind}")


async def test_a_browser_that_reconnects_after_the_end_gets_no_stream(stage: GatewayStage) -> None:
    execution_id = await start(stage)
    await release(stage, execution_id)
    address = f"/api/v1/executions/{execution_id}/events/stream"
    async with stage.client.get(address) as response:
        whole = [event async for event in events_of(response)]
    async with stage.client.get(address, headers={"Last-Event-ID": whole[-1].id}) as response:
        assert (response.status, await response.read()) == (204, b"")


@pytest.mark.parametrize("token", ["narrowed", "whole"])
async def test_a_cursor_passes_what_is_not_shown(token: str) -> None:
    async with GatewayStage(GatewayLimits(), signed_in=False).open() as stage:
        access = stage.operations.access
        admin = (await access.create_token(NewToken("all", "admin"), "test")).secret
        narrowed = (await access.create_token(NewToken("mine", "viewer", ("tests/mine",)), "test")).secret
        shown = {"Authorization": f"Bearer {narrowed if token == 'narrowed' else admin}"}
        query = "" if token == "narrowed" else "?name=nothing"
        async with stage.client.get(f"/api/v1/events/stream{query}", headers=shown) as response:
            body = {"playbook": PLAYBOOK.format(path="tests/theirs")}
            as_admin = {"Authorization": f"Bearer {admin}"}
            async with stage.client.post("/api/v1/executions", json=body, headers=as_admin) as answer:
                assert answer.status == 202
            lines = []
            while not lines or not lines[-1].startswith("id: "):
                lines.append((await response.content.readline()).decode().strip())
        assert set(lines[:-1]) <= {"retry: 2000", ""}
        await stage.operations.feed.everything(lines[-1].removeprefix("id: "))


async def test_the_number_of_streams_is_bounded() -> None:
    async with GatewayStage(GatewayLimits(max_streams=1)).open() as stage:
        execution_id = await start(stage)
        address = f"/api/v1/executions/{execution_id}/events/stream"
        async with stage.client.get(address) as response:
            await anext(events_of(response))
            async with stage.client.get(address) as refused:
                assert refused.status == 429 and "Retry-After" in refused.headers
                assert "NOETL_GATEWAY_MAX_STREAMS" in await refused.text()
        await release(stage, execution_id)


async def test_a_gateway_that_ends_ends_its_streams() -> None:
    async with GatewayStage(GatewayLimits()).open() as stage:
        execution_id = await start(stage)
        seen: list[Event] = []
        async with stage.client.get(f"/api/v1/executions/{execution_id}/events/stream") as response:
            events = events_of(response)
            await until(events, HELD, seen)
            stage.gateway.stop()
            await until_its_end(events, seen)
        assert seen[-1].name != "playbook.processed"


async def test_a_token_with_paths_receives_events_of_its_own_playbooks_only() -> None:
    async with GatewayStage(GatewayLimits(), signed_in=False).open() as stage:
        access = stage.operations.access
        admin = (await access.create_token(NewToken("all", "admin"), "test")).secret
        mine = (await access.create_token(NewToken("mine", "viewer", ("tests/mine",)), "test")).secret
        as_admin, as_viewer = ({"Authorization": f"Bearer {token}"} for token in (admin, mine))
        started = {}
        async with stage.client.get("/api/v1/events/stream?name=token.held", headers=as_viewer) as response:
            for path in ("tests/theirs", "tests/mine"):
                body = {"playbook": PLAYBOOK.format(path=path)}
                async with stage.client.post("/api/v1/executions", json=body, headers=as_admin) as answer:
                    started[path] = (await answer.json())["execution_id"]
            first = await anext(events_of(response))
            assert first.data["execution_id"] == started["tests/mine"]
        address = f"/api/v1/executions/{started['tests/theirs']}/events/stream"
        async with stage.client.get(address, headers=as_viewer) as response:
            assert response.status == 404

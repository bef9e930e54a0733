"""Webhooks through a gateway: who sent an event, what it starts, and what is said of it (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import Any

import pytest
from gateway_stage import TOKEN, GatewayStage
from openapi_checks import Described
from yarl import URL

from noetl_stream.errors import NotFound, PlaybookRefused
from noetl_stream.ports.operations.access import NewToken
from noetl_testkit.waiting import TIMEOUT_S, until_it_is

BUILD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: build, path: shop/build }
workload: { commit: none }
workflow:
  - step: start
    tool: { kind: noop, args: { commit: "{{ workload.commit }}" } }
"""
PUSHES = """
apiVersion: noetl.io/v2
kind: Trigger
metadata: { name: pushes, path: shop/pushes }
spec:
  on: { webhook: { verify: github, credential: github_webhook } }
  when: "{{ event.json.ref == 'refs/heads/main' }}"
  playbook: shop/build
  workload: { commit: "{{ event.json.after }}" }
"""
SECRET = "It's a Secret to Everybody"
HOOK = "/api/v1/hooks/shop/pushes"
MAIN = b'{"ref": "refs/heads/main", "after": "6113728f"}'


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={signature}", "Content-Type": "application/json", "Authorization": ""}


async def created(stage: GatewayStage, trigger: str = PUSHES, secret: Any = SECRET) -> dict[str, Any]:
    await stage.operations.playbooks.register(BUILD.encode(), "build.yaml", "ann")
    await stage.operations.credentials.put("github_webhook", secret, "ann")
    headers = {"Content-Type": "application/yaml"}
    async with stage.client.post("/api/v1/playbooks", data=trigger, headers=headers) as told:
        assert told.status in (200, 201), await told.text()
        path = (await told.json())["path"].replace("/", "%2F")
    async with stage.client.get(f"/api/v1/triggers/{path}") as told:
        found: dict[str, Any] = await told.json()
        return found


async def sent(
    stage: GatewayStage, body: bytes = MAIN, headers: dict[str, str] | None = None, to: str = HOOK
) -> tuple[int, dict[str, Any]]:
    """Status and answer of a delivery, as its sender sees it."""
    async with stage.client.post(to, data=body, headers=headers or signed(body)) as answer:
        return answer.status, await answer.json()


async def events(stage: GatewayStage) -> list[tuple[int, str, str | None]]:
    page = await stage.operations.triggers.history("shop/pushes", 100, None)
    return [(one.number, one.status, one.reason) for one in page.items]


async def test_a_signed_event_starts_an_execution_with_what_it_says(stage: GatewayStage) -> None:
    made = await created(stage)
    assert (made["path"], made["address"], made["paused"], made["events"]) == ("shop/pushes", HOOK, None, 0)
    assert made["on"] == {"webhook": {"form": "github", "credential": "github_webhook"}}
    status, answer = await sent(stage)
    assert (status, answer["number"], answer["status"]) == (202, 1, "started")
    execution = await stage.operations.executions.wait(answer["execution_id"], TIMEOUT_S)
    assert (execution.status, execution.path) == ("completed", "shop/build")
    assert (await stage.operations.executions.result(answer["execution_id"])).result == {"commit": "6113728f"}
    assert await events(stage) == [(1, "started", None)]


async def test_a_header_of_an_event_is_utf_8_or_else_latin_1(stage: GatewayStage) -> None:
    await created(stage)
    head = f"POST {HOOK} HTTP/1.1\r\nHost: {URL(stage.url).authority}\r\nContent-Length: {len(MAIN)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in signed(MAIN).items() if value)
    names = b"X-Latin: caf\xe9\r\nX-Text: caf\xc3\xa9\r\n"
    reader, writer = await asyncio.open_connection(URL(stage.url).host, URL(stage.url).port)
    writer.write(head.encode() + names + b"\r\n" + MAIN)
    assert (await reader.readline()).startswith(b"HTTP/1.1 202 ")
    writer.close()
    kept = (await stage.operations.triggers.event("shop/pushes", 1)).event
    assert kept is not None and [kept["headers"][name] for name in ("x-latin", "x-text")] == ["café", "café"]


async def test_the_sender_may_wait_for_the_end_and_is_shown_where_it_is(stage: GatewayStage) -> None:
    await created(stage)
    async with stage.client.post(f"{HOOK}?wait=60s", data=MAIN, headers=signed(MAIN)) as answer:
        found = await answer.json()
        assert (answer.status, found["execution_status"]) == (200, "completed")
        assert answer.headers["Location"] == f"/api/v1/executions/{found['execution_id']}"


async def test_a_repeated_delivery_starts_once_and_gets_the_same_answer(stage: GatewayStage) -> None:
    await created(stage)
    first = await sent(stage)
    again = {**signed(MAIN), "X-GitHub-Delivery": "another"}
    assert await sent(stage, headers=again) == first == await sent(stage)
    assert await events(stage) == [(1, "started", None)]


async def test_a_stranger_cannot_tell_a_wrong_signature_from_an_unknown_webhook(stage: GatewayStage) -> None:
    await created(stage)
    unsigned = {"Content-Type": "application/json"}
    wrong = [
        await sent(stage, headers=signed(MAIN, "another secret")),
        await sent(stage, headers=unsigned),
        await sent(stage, MAIN + b" ", headers=signed(MAIN)),
        await sent(stage, to="/api/v1/hooks/shop/nothing"),
        await sent(stage, to="/api/v1/hooks/shop/build"),
    ]
    assert {status for status, _ in wrong} == {404}
    assert len({json.dumps({**answer, "instance": ""}) for _, answer in wrong}) == 1
    assert await events(stage) == []


async def test_an_event_that_starts_nothing_is_listed_with_the_reason_and_can_be_sent_again(
    stage: GatewayStage, api: Described
) -> None:
    await created(stage)
    body = b'{"ref": "refs/heads/dev", "after": "1"}'
    assert await sent(stage, body) == (200, {"number": 1, "status": "ignored"})
    [(_, _, reason)] = await events(stage)
    assert reason == "`when` does not hold: {{ event.json.ref == 'refs/heads/main' }}"
    await created(stage, PUSHES.replace("refs/heads/main", "refs/heads/dev"))
    path = "shop%2Fpushes"
    async with stage.client.post(f"/api/v1/triggers/{path}/events/1/resend") as answer:
        again = await answer.json()
    assert (again["number"], again["status"], again["resent"]) == (2, "started", 1)
    assert again["event"]["body"] == body.decode()
    listed = (await api.call("listTriggerEvents", path="shop/pushes", query={"status": "ignored"})).body["items"]
    assert [(one["number"], one["event"]) for one in listed] == [(1, None)]


async def test_no_secret_and_no_signature_stands_in_an_event(stage: GatewayStage) -> None:
    await created(stage)
    await sent(stage, headers={**signed(MAIN), "Authorization": "Bearer x", "Cookie": "a=b", "X-GitHub-Event": "push"})
    event = (await stage.operations.triggers.event("shop/pushes", 1)).event
    assert event is not None
    assert event["headers"]["x-github-event"] == "push"
    assert not {"authorization", "cookie", "x-hub-signature-256"} & event["headers"].keys()
    assert TOKEN not in json.dumps(event)


async def test_two_secrets_are_valid_while_one_replaces_the_other(stage: GatewayStage) -> None:
    await created(stage, secret={"secrets": ["the new one", SECRET]})
    assert (await sent(stage))[0] == 202
    other = MAIN.replace(b"6113728f", b"7777")
    assert (await sent(stage, other, signed(other, "the new one")))[0] == 202


async def test_a_key_starts_one_execution_for_events_that_differ(stage: GatewayStage) -> None:
    await created(stage, PUSHES + '  key: "{{ event.json.after }}"\n')
    _, first = await sent(stage)
    other = MAIN.replace(b"}", b', "more": 1}')
    status, second = await sent(stage, other, signed(other))
    assert (status, second["status"], second["execution_id"]) == (202, "repeated", first["execution_id"])


async def test_a_trigger_and_its_events_can_be_read(stage: GatewayStage, api: Described) -> None:
    answer = await created(stage)
    assert answer == (await api.call("getTrigger", path="shop/pushes")).body
    delivered = await api.call("deliverEvent", path="shop/pushes", body=MAIN.decode(), headers=signed(MAIN))
    assert delivered.status == 202
    event = (await api.call("getTriggerEvent", path="shop/pushes", number="1")).body
    assert (event["status"], event["event"]["method"]) == ("started", "POST")
    assert (await api.call("resendTriggerEvent", path="shop/pushes", number="1")).body["number"] == 2
    assert (await api.call("getTriggerEvent", path="shop/pushes", number="3")).status == 404


async def test_a_paused_trigger_ignores_events_until_it_is_resumed(stage: GatewayStage, api: Described) -> None:
    await created(stage)
    paused = (await api.call("pauseTrigger", path="shop/pushes")).body
    assert paused["paused"] == "on request"
    assert (await sent(stage))[1]["status"] == "ignored"
    assert (await api.call("resumeTrigger", path="shop/pushes")).body["paused"] is None
    other = MAIN.replace(b"6113728f", b"7777")
    assert (await sent(stage, other, signed(other)))[1]["status"] == "started"
    assert [status for _, status, _ in await events(stage)] == ["started", "ignored"]


async def as_ann(stage: GatewayStage, *paths: str) -> tuple[str, dict[str, str]]:
    """The id of a new token of an author for these paths, and the headers of a call with it."""
    made = await stage.operations.access.create_token(NewToken("ann", "author", paths, None), "test")
    return made.id, {"Authorization": f"Bearer {made.secret}", "Content-Type": "application/yaml"}


async def test_a_trigger_whose_maker_loses_the_right_is_paused_with_the_reason(stage: GatewayStage) -> None:
    await created(stage)
    await stage.operations.triggers.delete("shop/pushes", "test")
    token_id, ann = await as_ann(stage, "shop")
    async with stage.client.post("/api/v1/playbooks", data=PUSHES, headers=ann) as made:
        assert (await made.json())["registered_by"] == "token:ann"
    assert (await sent(stage))[1]["status"] == "started"
    await stage.operations.access.revoke_token(token_id, "test")
    other = MAIN.replace(b"6113728f", b"7777")
    assert (await sent(stage, other, signed(other)))[1]["status"] == "ignored"
    assert (await stage.operations.triggers.get("shop/pushes")).paused == "token:ann is revoked or has expired"
    [(_, _, reason), _] = await events(stage)
    assert reason == "token:ann is revoked or has expired"


async def test_a_token_with_paths_makes_and_sees_triggers_of_its_own_alone(stage: GatewayStage) -> None:
    await created(stage)
    _, ann = await as_ann(stage, "shop/more")
    more = PUSHES.replace("path: shop/pushes", "path: shop/more/pushes")
    ends = "on: { execution: { path: shop/* } }"
    own = more.replace("playbook: shop/build", "playbook: shop/more/build")
    await stage.operations.playbooks.register(
        BUILD.replace("shop/build", "shop/more/build").encode(), "build.yaml", "test"
    )
    watching = own.partition("  on:")[0] + f"  {ends}\n  playbook: shop/more/build\n"
    for text, status in ((PUSHES, 403), (more, 403), (watching, 403), (own, 201)):
        async with stage.client.post("/api/v1/playbooks", data=text, headers=ann) as made:
            assert made.status == status, await made.text()
    async with stage.client.get("/api/v1/triggers", headers=ann) as listed:
        assert [one["path"] for one in (await listed.json())["items"]] == ["shop/more/pushes"]
    async with stage.client.get("/api/v1/triggers/shop%2Fpushes", headers=ann) as hidden:
        assert hidden.status == 403


async def test_a_check_finds_circles_over_the_whole_catalog(stage: GatewayStage) -> None:
    await stage.operations.playbooks.register(BUILD.encode(), "build.yaml", "ann")
    ends = PUSHES.partition("  on:")[0] + "  on: { execution: { path: %s } }\n  playbook: %s\n"
    alone = (ends % ("shop/build", "shop/build")).replace("shop/pushes", "shop/again")
    assert (await stage.operations.playbooks.check(alone.encode(), "again.yaml")).diagnostics == []
    await stage.operations.playbooks.register((ends % ("shop/other", "shop/build")).encode(), "one.yaml", "ann")
    found = await stage.operations.playbooks.check(
        (ends % ("shop/build", "shop/other")).replace("shop/pushes", "shop/again").encode(), "again.yaml"
    )
    [circle] = [one for one in found.diagnostics if one.code == "trigger_circle"]
    assert "through shop/pushes" in circle.message
    assert circle.severity == "warning"


CIRCLE = (
    "apiVersion: noetl.io/v2\nkind: Trigger\nmetadata: { name: %s, path: %s }\n"
    "spec:\n  on: { execution: { path: %s } }\n  playbook: %s\n"
)


async def test_a_trigger_that_closes_a_circle_is_refused_unless_it_allows_that(stage: GatewayStage) -> None:
    playbooks = stage.operations.playbooks
    await playbooks.register(BUILD.encode(), "build.yaml", "ann")
    await playbooks.register(BUILD.replace("shop/build", "shop/other").encode(), "other.yaml", "ann")
    await playbooks.register((CIRCLE % ("one", "shop/one", "shop/other", "shop/build")).encode(), "one.yaml", "ann")
    closing = CIRCLE % ("two", "shop/two", "shop/build", "shop/other")
    with pytest.raises(
        PlaybookRefused, match=r"two\.yaml:6: what follows from `shop/other` may start it again"
    ) as refused:
        await playbooks.register(closing.encode(), "two.yaml", "ann")
    assert refused.value.hint is not None and "allow_circle: true" in refused.value.hint
    assert [one.path for one in (await stage.operations.triggers.page("", 10, None)).items] == ["shop/one"]
    meant = (closing + "  allow_circle: true\n").encode()
    await playbooks.register(meant, "two.yaml", "ann")
    assert (await playbooks.check(meant, "two.yaml")).diagnostics == []


async def test_a_circle_leads_over_events_that_a_registered_playbook_emits(stage: GatewayStage) -> None:
    playbooks = stage.operations.playbooks
    emits = "    spec: { policy: { emit: { events: [ { name: %s } ] } } }\n"
    for name, event in (("shop/build", "built"), ("shop/other", "tested")):
        text = BUILD.replace("shop/build", name).rstrip() + "\n" + emits % event
        await playbooks.register(text.encode(), "build.yaml", "ann")
    on_event = CIRCLE.replace("execution: { path: %s }", "event: { name: %s, path: shop/* }")
    await playbooks.register((on_event % ("one", "shop/one", "tested", "shop/build")).encode(), "one.yaml", "ann")
    assert (
        await playbooks.check((on_event % ("two", "shop/two", "never", "shop/other")).encode(), "")
    ).diagnostics == []
    with pytest.raises(PlaybookRefused, match="what follows from `shop/other` may start it again through another"):
        await playbooks.register((on_event % ("two", "shop/two", "built", "shop/other")).encode(), "two.yaml", "ann")


async def test_a_circle_names_no_triggers_that_whoever_closes_it_may_not_see(stage: GatewayStage) -> None:
    playbooks = stage.operations.playbooks
    await playbooks.register(BUILD.encode(), "build.yaml", "ann")
    await playbooks.register(BUILD.replace("shop/build", "shop/other").encode(), "other.yaml", "ann")
    await playbooks.register((CIRCLE % ("one", "bank/one", "shop/other", "shop/build")).encode(), "one.yaml", "ann")
    closing = (CIRCLE % ("two", "shop/two", "shop/build", "shop/other")).encode()
    [found] = (await playbooks.check(closing, "two.yaml", ["shop"])).diagnostics
    assert "through another trigger, without end" in found.message
    with pytest.raises(PlaybookRefused, match="through another trigger"):
        await playbooks.register(closing, "two.yaml", "ann")


async def test_a_check_warns_of_ends_of_a_playbook_that_is_not_registered(stage: GatewayStage) -> None:
    """A slip in the path would be an alert that is never sent."""
    await stage.operations.playbooks.register(BUILD.encode(), "build.yaml", "ann")
    ends = PUSHES.partition("  on:")[0] + "  on: { execution: { path: %s } }\n  notify: { command: [ cat ] }\n"
    for path, warned in (("shop/build", []), ("shop/*", []), ("shop/bild", ["no playbook `shop/bild` is registered"])):
        found = await stage.operations.playbooks.check((ends % path).encode(), "alert.yaml")
        assert [one.message for one in found.diagnostics] == warned


async def test_a_deleted_trigger_takes_no_event_and_can_be_made_again(stage: GatewayStage, api: Described) -> None:
    await created(stage)
    await sent(stage)
    assert (await api.call("deletePlaybook", path="shop/pushes")).status == 409
    await api.call("deleteTrigger", path="shop/pushes")
    assert (await api.call("deletePlaybook", path="shop/pushes")).status == 404
    assert (await sent(stage))[0] == 404
    assert (await api.call("listTriggers")).body["items"] == []
    await created(stage)
    assert (await sent(stage))[1] == {"number": 1, "status": "started"} | (await sent(stage))[1]


async def test_slack_is_sent_its_challenge_back(stage: GatewayStage) -> None:
    await created(stage, PUSHES.replace("verify: github", "verify: slack"))
    body = b'{"type": "url_verification", "challenge": "3eZbrw1a"}'
    at = str(stage.clock.now_ms() // 1000)
    signature = hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    headers = {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={signature}"}
    assert await sent(stage, body, headers) == (200, {"challenge": "3eZbrw1a"})
    assert await events(stage) == []


async def test_a_body_that_is_too_large_is_refused(stage: GatewayStage) -> None:
    await created(stage)
    large = b'{"a": "' + b"x" * (256 * 1024) + b'"}'
    assert (await sent(stage, large, signed(large)))[0] == 413


async def test_a_trigger_of_an_unknown_playbook_is_not_made(stage: GatewayStage) -> None:
    headers = {"Content-Type": "application/yaml"}
    async with stage.client.post("/api/v1/playbooks", data=PUSHES, headers=headers) as told:
        assert (told.status, "shop/build" in (await told.json())["detail"]) == (422, True)
    with pytest.raises(NotFound):
        await stage.operations.playbooks.versions("shop/pushes")
    assert (await stage.operations.triggers.page("", 10, None)).items == []


ORDERS = PUSHES.replace(
    "webhook: { verify: github, credential: github_webhook }", "nats: { stream: ORDERS, from: all }"
)


async def test_a_message_of_a_stream_starts_an_execution_and_the_trigger_says_how_far_it_is(
    stage: GatewayStage, api: Described
) -> None:
    streams = stage.broker.trigger_streams
    streams.make("ORDERS")
    streams.publish("ORDERS", "orders.paid", b'{"ref": "refs/heads/main", "after": "6113728f"}')
    streams.publish("ORDERS", "orders.paid", b"none")
    made = await created(stage, ORDERS.replace("event.json", "event.data"))
    assert made["on"] == {"nats": {"stream": "ORDERS", "subject": ">", "from": "all", "format": "json"}}
    await until_it_is((2, 0), lambda: _taken(stage))
    [poison, started] = (await stage.operations.triggers.history("shop/pushes", 10, None)).items
    assert started.execution_id is not None and poison.reason is not None and "not JSON" in poison.reason
    assert (await stage.operations.executions.wait(started.execution_id, TIMEOUT_S)).status == "completed"
    found = (await api.call("getTrigger", path="shop/pushes")).body["stream"]
    assert (found["sequence"], found["pending"], found["trouble"]) == (2, 0, None)
    assert found["consumer"].startswith("noetl-")


async def _taken(stage: GatewayStage) -> tuple[int, int]:
    """Events, and executions of them that run."""
    found = await stage.operations.triggers.get("shop/pushes")
    return found.events, found.stream.running if found.stream is not None else -1


async def test_a_stream_that_the_operator_has_not_named_is_refused_in_words_that_say_what_to_set(
    stage: GatewayStage,
) -> None:
    await stage.operations.playbooks.register(BUILD.encode(), "build.yaml", "ann")
    closed = ORDERS.replace("ORDERS", "PAYMENTS").replace("event.json", "event.data")
    headers = {"Content-Type": "application/yaml"}
    async with stage.client.post("/api/v1/playbooks", data=closed, headers=headers) as told:
        assert told.status == 403
        assert "NOETL_TRIGGER_STREAMS=PAYMENTS" in (await told.json())["detail"]

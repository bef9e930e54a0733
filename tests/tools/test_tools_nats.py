"""``kind: nats`` with a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import socket
import subprocess
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from msgspec.structs import replace
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, StreamConfig

from nats_client import flush
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.egress import egress_rules
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.nats.tool import NatsTool
from noetl_testkit.waiting import TIMEOUT_S

CONFIG = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/store" }}
authorization {{ users: [
  {{ user: ann, password: s3cret }}
  {{ user: bob, password: s3cret, permissions: {{ publish: {{ deny: "private.>" }} }} }}
] }}
"""


class Server:
    """A local nats-server with the users ann, who may do everything, and bob."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        (folder / "nats.conf").write_text(CONFIG.format(port=self.port, folder=folder))

    def url(self, user: str = "ann") -> str:
        return f"nats://{user}:s3cret@127.0.0.1:{self.port}"

    def start(self) -> None:
        binary = shutil.which("nats-server", path=sysconfig.get_path("scripts"))
        assert binary
        with (self._folder / "nats.log").open("ab") as log:
            command = [binary, "-c", str(self._folder / "nats.conf")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


class Runner:
    """Runs actions with one tool, as the user of the credential ``bus``."""

    def __init__(self, make_call: Any, url: str) -> None:
        self.tool = NatsTool(Egress(egress_rules("loopback")))
        self._make_call = make_call
        self._url = url

    def call(self, action: str, timeouts: Timeouts | None = None, knobs: Any = None, **inputs: Any) -> ToolCall:
        given = {"auth": "bus", "action": action, **inputs}
        call: ToolCall = self._make_call(given, timeouts=timeouts, knobs=knobs, credentials={"bus": self._url})
        return call

    async def __call__(self, action: str, **inputs: Any) -> Any:
        return (await self.tool.run(self.call(action, **inputs))).result

    async def again(self, action: str, idempotency_key: str, /, **inputs: Any) -> Any:
        """Runs with another idempotency key, as another visit of the task would."""
        return (await self.tool.run(replace(self.call(action, **inputs), idempotency_key=idempotency_key))).result

    async def failure(self, action: str, **inputs: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as failed:
            await self(action, **inputs)
        assert "s3cret" not in failed.value.error.message
        return failed.value


@pytest.fixture
async def other(server: Server) -> AsyncIterator[Client]:
    """Another client of the same server, once it has started."""
    while True:
        try:
            client = await nats.connect(server.url(), allow_reconnect=False, error_cb=_ignore)
            break
        except OSError:
            await asyncio.sleep(0)
    yield client
    await client.close()


async def _ignore(error: Exception) -> None:
    """The server is still starting."""


@pytest.fixture
async def run(make_call: Any, server: Server, other: Client) -> AsyncIterator[Runner]:
    runner = Runner(make_call, server.url())
    yield runner
    await runner.tool.close()


@pytest.fixture
async def bucket(other: Client, request: pytest.FixtureRequest) -> str:
    name = f"kv_{abs(hash(request.node.name))}"
    await other.jetstream().create_key_value(bucket=name)
    return name


@pytest.fixture
async def store(other: Client, request: pytest.FixtureRequest) -> str:
    name = f"objects_{abs(hash(request.node.name))}"
    await other.jetstream().create_object_store(name)
    return name


async def answering(other: Client, subject: str, answer: Callable[[Msg], Awaitable[None]]) -> None:
    await other.subscribe(subject, cb=answer)
    await flush(other)


@pytest.mark.parametrize(
    ("payload", "sent"),
    [
        ("text é", "text é".encode()),
        ({"a": [1]}, b'{"a":[1]}'),
        (5, b"5"),
        (None, b""),
    ],
)
async def test_a_message_is_published(run: Runner, other: Client, payload: Any, sent: bytes) -> None:
    subscription = await other.subscribe("orders.new")
    await flush(other)
    result = await run("publish", subject="orders.new", payload=payload, headers={"X-Team": "blue"})
    message = await subscription.next_msg(timeout=TIMEOUT_S)
    assert result == {"subject": "orders.new"}
    assert message.data == sent
    assert message.headers == {"X-Team": "blue", "Nats-Msg-Id": "key-1"}


async def test_bytes_travel_as_base64(run: Runner, other: Client) -> None:
    subscription = await other.subscribe("images.new")
    await flush(other)
    await run("publish", subject="images.new", payload=base64.b64encode(b"\x89PNG\xff").decode(), encoding="base64")
    assert (await subscription.next_msg(timeout=TIMEOUT_S)).data == b"\x89PNG\xff"


async def test_a_stream_stores_a_message_once_for_one_idempotency_key(run: Runner, other: Client) -> None:
    await other.jetstream().add_stream(StreamConfig(name="BILLS", subjects=["bills.>"]))
    first = await run("publish", subject="bills.new", payload={"n": 1}, jetstream=True)
    assert first == {"stream": "BILLS", "seq": 1, "duplicate": False}
    assert await run("publish", subject="bills.new", payload={"n": 1}, jetstream=True) == {**first, "duplicate": True}
    assert (await run.again("publish", "key-2", subject="bills.new", jetstream=True))["seq"] == 2


async def test_without_a_stream_nothing_can_be_stored(run: Runner) -> None:
    failed = await run.failure("publish", subject="nowhere", jetstream=True)
    assert (failed.error.kind, failed.error.message) == ("not_found", "no stream stores nowhere")


def config(**settings: Any) -> StreamConfig:
    return StreamConfig(name="BOXES", subjects=["boxes.>"], discard=DiscardPolicy.NEW, **settings)


@pytest.fixture
async def limited(other: Client) -> AsyncIterator[Callable[[StreamConfig], Awaitable[Any]]]:
    """Makes a stream that is deleted after the test."""
    jetstream = other.jetstream()
    yield jetstream.add_stream
    await jetstream.delete_stream("BOXES")


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        (config(max_msgs=1), "10077", "maximum messages exceeded"),
        (config(max_bytes=100), "10077", "maximum bytes exceeded"),
        (
            config(max_msgs=9, max_msgs_per_subject=1, discard_new_per_subject=True),
            "10077",
            "maximum messages per subject exceeded",
        ),
        (config(max_msg_size=10), "10054", "message size exceeds maximum allowed"),
    ],
)
async def test_a_limit_of_a_stream_is_a_refusal_that_lasts(
    run: Runner,
    limited: Callable[[StreamConfig], Awaitable[Any]],
    other: Client,
    settings: StreamConfig,
    code: str,
    words: str,
) -> None:
    await limited(settings)
    if settings.max_msgs:
        await other.jetstream().publish("boxes.new", b"first")
    failed = (await run.failure("publish", subject="boxes.new", payload="x" * 80, jetstream=True)).error
    assert (failed.kind, failed.retryable, failed.code) == ("refused", False, code)
    assert failed.message == f"rejected by NATS: boxes.new: {words}"


async def test_a_sealed_stream_refuses(
    run: Runner, limited: Callable[[StreamConfig], Awaitable[Any]], other: Client
) -> None:
    await limited(config())
    await other.jetstream().update_stream(config(sealed=True))
    failed = (await run.failure("publish", subject="boxes.new", jetstream=True)).error
    assert (failed.kind, failed.retryable, failed.code) == ("refused", False, "10109")


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("Nats-Expected-Last-Sequence", "conflict"),
        ("Nats-Expected-Last-Subject-Sequence", "conflict"),
        ("Nats-Expected-Last-Msg-Id", "conflict"),
        ("Nats-Expected-Stream", "refused"),
    ],
)
async def test_a_message_that_expects_another_state_of_its_stream_is_not_stored(
    run: Runner, limited: Callable[[StreamConfig], Awaitable[Any]], header: str, kind: str
) -> None:
    await limited(config())
    failed = (await run.failure("publish", subject="boxes.new", headers={header: "7"}, jetstream=True)).error
    assert (failed.kind, failed.retryable) == (kind, False)


@pytest.mark.parametrize(
    ("code", "err_code", "description", "kind", "retryable"),
    [
        (503, 10008, "JetStream system temporarily unavailable", "connection", True),
        (503, 10077, "store is closed", "connection", True),
        (429, 10167, "too many requests", "connection", True),
        (503, 10023, "insufficient resources", "refused", False),
        (503, 10039, "JetStream not enabled for account", "refused", False),
        (500, 10111, "rollup not permitted", "refused", False),
    ],
)
async def test_only_what_passes_by_itself_is_retryable(
    run: Runner, other: Client, code: int, err_code: int, description: str, kind: str, retryable: bool
) -> None:
    error = {"code": code, "err_code": err_code, "description": description}

    async def answer(message: Msg) -> None:
        await other.publish(message.reply, json.dumps({"error": error}).encode())

    await answering(other, "odd", answer)
    failed = (await run.failure("publish", subject="odd", jetstream=True)).error
    assert (failed.kind, failed.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (b'{"sum": 3}', {"data": {"sum": 3}}),
        (b" [1]", {"data": [1]}),
        (b"007", {"data": "007"}),
        (b"{no json", {"data": "{no json"}),
        (b"", {"data": ""}),
        (b"\xff", {"data": "/w==", "encoding": "base64"}),
        (b"a\0b", {"data": "YQBi", "encoding": "base64"}),
    ],
)
async def test_a_request_returns_the_reply(run: Runner, other: Client, reply: bytes, shown: Any) -> None:
    async def answer(message: Msg) -> None:
        await other.publish(message.reply, reply, headers={"X-Asked": message.data.decode()})

    await answering(other, "sum", answer)
    result = await run("request", subject="sum", payload=[1, 2])
    assert result == {**shown, "headers": {"X-Asked": "[1,2]"}, "subject": "sum"}


async def test_a_reply_json_cannot_carry_is_refused(run: Runner, other: Client) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b'{"a": "\\u0000"}')

    await answering(other, "nul", answer)
    assert (await run.failure("request", subject="nul")).error.kind == "result_not_json"


async def test_a_request_without_responders_is_not_found(run: Runner) -> None:
    failed = await run.failure("request", subject="nobody")
    assert (failed.error.kind, failed.error.retryable) == ("not_found", True)


async def test_a_late_reply_is_a_timeout(run: Runner, other: Client) -> None:
    async def silent(message: Msg) -> None:
        """Never answers."""

    await answering(other, "silent", silent)
    failed = await run.failure("request", subject="silent", timeouts=Timeouts(read=0.05))
    assert (failed.error.kind, failed.error.retryable) == ("timeout", True)


async def test_a_cancelled_request_ends(run: Runner, other: Client) -> None:
    arrived = asyncio.Event()

    async def silent(message: Msg) -> None:
        arrived.set()

    await answering(other, "waiting", silent)
    task = asyncio.ensure_future(run("request", subject="waiting"))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_server_that_dies_ends_the_request(make_call: Any, tmp_path: Path) -> None:
    own = Server(tmp_path)
    own.start()
    run = Runner(make_call, own.url())
    async with asyncio.timeout(TIMEOUT_S):
        await _until_it_answers(run)
        client = await nats.connect(own.url(), allow_reconnect=False, error_cb=_ignore)
        arrived = asyncio.Event()

        async def die(message: Msg) -> None:
            own.kill()
            arrived.set()

        await answering(client, "dying", die)
        failed = await run.failure("request", subject="dying", timeouts=Timeouts(read=3600))
        assert arrived.is_set(), failed.error
        assert (failed.error.kind, failed.error.retryable) == ("connection", True)
    await run.tool.close()
    await client.close()


async def test_a_missing_permission_is_an_error(make_call: Any, server: Server, other: Client) -> None:
    bob = Runner(make_call, server.url("bob"))
    failed = await bob.failure("publish", subject="private.Diary", payload="x")
    assert (failed.error.kind, failed.error.retryable) == ("refused", False)
    assert (await bob.failure("request", subject="private.Diary", timeouts=Timeouts(read=0.05))).error.kind == "refused"
    assert await bob("publish", subject="public", payload="x") == {"subject": "public"}
    await bob.tool.close()


async def test_each_of_several_tasks_hears_that_it_may_not_publish(make_call: Any, server: Server) -> None:
    bob = Runner(make_call, server.url("bob"))
    failures = await asyncio.gather(*(bob.failure("publish", subject="private.diary", payload="x") for _ in range(20)))
    assert {failed.error.kind for failed in failures} == {"refused"}
    await bob.tool.close()


async def test_digits_that_a_value_loses_are_warned_of(run: Runner, bucket: str) -> None:
    await run("kv_put", bucket=bucket, key="a", value='{"n": 12345678901234567.89}')
    [warning] = (await run.tool.run(run.call("kv_get", bucket=bucket, key="a"))).warnings
    assert (warning.kind, warning.message.rpartition(": ")[2]) == ("digits_lost", "/value/n")


async def test_a_value_is_put_and_read_by_key(run: Runner, bucket: str) -> None:
    assert await run("kv_put", bucket=bucket, key="a.b", value={"n": 1}) == {"revision": 1}
    assert await run("kv_get", bucket=bucket, key="a.b") == {"value": {"n": 1}, "revision": 1}
    assert await run.again("kv_put", "key-2", bucket=bucket, key="a.b", value="text") == {"revision": 2}
    assert await run("kv_get", bucket=bucket, key="a.b") == {"value": "text", "revision": 2}


async def test_a_value_is_deleted(run: Runner, bucket: str) -> None:
    await run.again("kv_put", "put", bucket=bucket, key="a", value="x")
    assert await run.again("kv_delete", "delete", bucket=bucket, key="a") == {"revision": 2}
    failed = await run.failure("kv_get", bucket=bucket, key="a")
    assert (failed.error.kind, failed.error.message) == ("not_found", f"a in {bucket} does not exist")


async def test_a_value_changes_only_from_the_expected_revision(run: Runner, bucket: str) -> None:
    key = {"bucket": bucket, "key": "a"}
    assert await run.again("kv_put", "1", **key, value="new", expected_revision=0) == {"revision": 1}
    with pytest.raises(ToolFailure) as failed:
        await run.again("kv_put", "2", **key, value="new again", expected_revision=0)
    assert (failed.value.error.kind, failed.value.error.retryable) == ("conflict", False)
    assert await run.again("kv_put", "3", **key, value="next", expected_revision=1) == {"revision": 2}
    with pytest.raises(ToolFailure, match=r"does not have expected_revision \(1\)"):
        await run.again("kv_delete", "4", **key, expected_revision=1)
    assert await run.again("kv_delete", "5", **key, expected_revision=2) == {"revision": 3}
    assert await run.again("kv_put", "6", **key, value="anew", expected_revision=0) == {"revision": 4}


async def test_a_task_that_runs_again_does_not_conflict_with_itself(run: Runner, bucket: str) -> None:
    key = {"bucket": bucket, "key": "a", "value": "x", "expected_revision": 0}
    assert await run("kv_put", **key) == await run("kv_put", **key) == {"revision": 1}


async def test_an_object_is_put_and_read(run: Runner, store: str) -> None:
    text = "é" * 300_000  # several pieces
    put = await run("object_put", bucket=store, key="reports/may 2026.txt", value=text)
    assert put["size"] == 600_000
    got = await run("object_get", bucket=store, key="reports/may 2026.txt")
    assert got == {"data": text, **put}


async def test_an_object_of_bytes_is_read_back_unchanged(run: Runner, store: str) -> None:
    picture = base64.b64encode(bytes(range(256))).decode()
    await run("object_put", bucket=store, key="picture", value=picture, encoding="base64")
    got = await run("object_get", bucket=store, key="picture")
    assert (got["data"], got["encoding"], got["size"]) == (picture, "base64", 256)


async def test_an_object_over_the_cap_is_not_read(run: Runner, store: str) -> None:
    await run("object_put", bucket=store, key="big", value="x" * 101)
    failed = await run.failure("object_get", bucket=store, key="big", knobs={"max_object_bytes": 100})
    assert failed.error.kind == "output_too_large"
    assert "has 101 bytes, which exceeds 100; " in failed.error.message
    assert failed.error.message.endswith("raise `spec.max_object_bytes`")
    assert (await run("object_get", bucket=store, key="big", knobs={"max_object_bytes": 101}))["size"] == 101


async def test_an_empty_object_can_be_read(run: Runner, store: str) -> None:
    await run("object_put", bucket=store, key="empty", value=None)
    assert (await run("object_get", bucket=store, key="empty"))["data"] == ""


async def test_a_link_is_not_followed(run: Runner, store: str, other: Client) -> None:
    objects = await other.jetstream().object_store(store)
    target = await objects.put("target", b"x")
    options = {"link": {"bucket": store, "name": "target"}}
    link = {"name": "link", "bucket": store, "nuid": target.nuid, "options": options}
    name = base64.urlsafe_b64encode(b"link").decode()
    await other.jetstream().publish(f"$O.{store}.M.{name}", json.dumps(link).encode())
    assert (await run.failure("object_get", bucket=store, key="link")).error.kind == "invalid_input"


@pytest.mark.parametrize("action", ["kv_get", "kv_put", "kv_delete", "object_get", "object_put"])
async def test_a_bucket_that_is_not_there_is_not_found(run: Runner, action: str) -> None:
    value = {"value": "x"} if action.endswith("put") else {}
    failed = await run.failure(action, bucket="missing", key="a", **value)
    assert (failed.error.kind, failed.error.message) == ("not_found", "no bucket missing")


async def test_an_object_that_is_not_there_is_not_found(run: Runner, store: str) -> None:
    assert (await run.failure("object_get", bucket=store, key="a")).error.kind == "not_found"


async def test_a_message_above_the_size_limit_of_the_server_is_refused(run: Runner) -> None:
    failed = await run.failure("publish", subject="big", payload="x" * 2_000_000)
    assert (failed.error.kind, failed.error.message) == (
        "invalid_input",
        "payload: larger than the server accepts (1,048,576 bytes)",
    )


async def test_tasks_share_one_connection(run: Runner, other: Client) -> None:
    prefixes: set[str] = set()

    async def answer(message: Msg) -> None:
        prefixes.add(message.reply.rpartition(".")[0][:30])  # the connection's own part of the reply subject
        await message.respond(b"")

    await answering(other, "many", answer)
    await asyncio.gather(*(run("request", subject="many") for _ in range(50)))
    assert len(prefixes) == 1


async def test_a_server_that_comes_back_is_used_again(make_call: Any, tmp_path: Path) -> None:
    own = Server(tmp_path)
    run = Runner(make_call, own.url())
    failed = await run.failure("publish", subject="a")
    assert (failed.error.kind, failed.error.retryable) == ("connection", True)
    own.start()
    async with asyncio.timeout(TIMEOUT_S):
        await _until_it_answers(run)
        own.kill()
        failed = await run.failure("publish", subject="a")
        assert (failed.error.kind, failed.error.retryable) == ("connection", True)
        own.start()
        await _until_it_answers(run)
    await run.tool.close()
    own.kill()


async def _until_it_answers(run: Runner) -> None:
    while True:
        try:
            await run("publish", subject="a")
            return
        except ToolFailure as failure:
            assert failure.error.retryable, failure.error
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("credential", "kind"),
    [
        ({"url": "nats://127.0.0.1:{port}", "user": "ann", "password": "s3cret"}, None),
        ("nats://127.0.0.1:1,nats://ann:s3cret@127.0.0.1:{port}", None),
        ("nats://ann:wrong@127.0.0.1:{port}", "credential"),
        ({"url": "nats://127.0.0.1:{port}", "token": "s3cret"}, "credential"),
        ({"url": "nats://127.0.0.1:{port}", "creds": "s3cret"}, "credential"),
        ("http://127.0.0.1:{port}", "credential"),
        ({"url": "nats://127.0.0.1:{port}", "user": "ann"}, "credential"),
        ({"dsn": "s3cret"}, "credential"),
        ({"url": 5}, "credential"),
        ("nats://127.0.0.1:1", "connection"),
    ],
)
async def test_a_credential_is_a_url_or_a_mapping(
    make_call: Any, other: Client, server: Server, credential: Any, kind: str | None
) -> None:
    def filled(value: Any) -> Any:
        return value.replace("{port}", str(server.port)) if isinstance(value, str) else value

    given = {key: filled(value) for key, value in credential.items()} if isinstance(credential, dict) else credential
    run = Runner(make_call, filled(given))
    if kind is None:
        assert await run("publish", subject="a") == {"subject": "a"}
    else:
        assert (await run.failure("publish", subject="a")).error.kind == kind
    await run.tool.close()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"action": "publish"}, "subject: required by publish"),
        ({"action": "request", "subject": "a", "jetstream": True}, "jetstream: not used by request"),
        ({"action": "kv_get", "bucket": "b"}, "key: required by kv_get"),
        ({"action": "kv_get", "bucket": "b", "key": "a", "value": 1}, "payload: not used by kv_get"),
        ({"action": "kv_put", "bucket": "b", "key": "a"}, "payload: required by kv_put"),
        ({"action": "kv_put", "bucket": "b", "key": ".a", "value": 1}, "key: must have letters, digits and"),
        ({"action": "kv_put", "bucket": "b.c", "key": "a", "value": 1}, "bucket: must have letters, digits,"),
        ({"action": "publish", "subject": "a.*"}, "subject: must be words separated by dots"),
        ({"action": "publish", "subject": "a b"}, "subject: must be words separated by dots"),
        ({"action": "publish", "subject": "a..b"}, "subject: must be words separated by dots"),
        ({"action": "publish", "subject": "a", "headers": {"X": "a\r\nY: b"}}, "headers.X: the value contains"),
        ({"action": "publish", "subject": "a", "payload": "é", "encoding": "base64"}, "payload: not valid base64"),
        ({"action": "publish", "subject": "a", "payload": 1, "value": 1}, "value: is the same input as payload"),
        ({"action": "kv_watch"}, "action: input should be 'publish'"),
    ],
)
async def test_wrong_inputs_are_refused(run: Runner, inputs: dict[str, Any], message: str) -> None:
    failed = await run.failure(**inputs)
    assert failed.error.kind == "invalid_input"
    assert failed.error.message.startswith(message), failed.error.message

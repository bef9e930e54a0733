"""Secrets on a worker: where they come from, how long they are kept, and that tasks alone see them (LANGUAGE §11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from keychain_stage import OWN, READS, Vault, failure_of, inputs_read, result_of
from worker_stage import EXECUTION, Stage

from noetl_stream.model.messages import Go, Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.playbook.kinds.keychain import OauthSettings, installed_kinds
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.oauth2 import fetch_token
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.worker.secrets.keychain import Keychain, Secret, find_stored
from noetl_stream.worker.waiting import Asker
from noetl_stream.worker.worker_limits import ABSENT_KEPT_S, SECRET_KEPT_S, UNKNOWN_LIFETIME_S

TOO_SHORT = (
    "holds a secret of fewer than 4 characters, which cannot be redacted from logs and results; "
    "names and addresses belong under keys such as `username`, `host`, `port`"
)


async def test_a_stored_credential_reaches_the_task_and_nothing_that_is_recorded(vault: Vault) -> None:
    await vault.keeper.put("entry", {"user": "ann", "password": "s3cret-value"}, "ann")
    [processed] = await vault.run(READS % "credential")
    assert inputs_read(vault) == [{"user": "ann", "password": "s3cret-value"}]
    assert result_of(processed) == {"said": {"user": "ann", "password": "***"}}
    kept = b"".join(stored.message.body for stored in vault.stage.broker.event_log.stored)
    assert b"s3cret-value" not in kept


@pytest.mark.parametrize("kind", ["postgres_credential", "secret_manager", "credential, credential: entry"])
async def test_the_store_has_other_names(vault: Vault, kind: str) -> None:
    await vault.keeper.put("entry", "s3cret-value", "ann")
    await vault.run(READS % kind)
    assert inputs_read(vault) == ["s3cret-value"]


async def test_an_entry_is_resolved_only_when_a_task_reads_it(vault: Vault) -> None:
    await vault.run("- step: start\n  tool: {kind: puppet}\nkeychain:\n- {name: entry, kind: credential}\n")
    assert vault.lookups == []


async def test_a_missing_name_is_reported_with_the_nearest_one(vault: Vault) -> None:
    await vault.keeper.put("entri", "s3cret-value", "ann")
    [processed] = await vault.run(READS % "credential")
    error = failure_of(processed)
    assert error.kind == "credential"
    assert error.message == (
        "keychain.entry: no credential named 'entry': `noetl-stream credential set entry` stores one, "
        "or set NOETL_CREDENTIAL_ENTRY for the worker; did you mean `entri`?"
    )
    assert vault.stage.puppet.calls == []


async def test_a_value_that_cannot_be_decrypted_names_its_key(vault: Vault) -> None:
    other = KeyRing(read_key(new_key(), "a test"))
    await DirectCredentials(vault.credentials, other).put("entry", "s3cret-value", "ann")
    [processed] = await vault.run(READS % "credential")
    message = failure_of(processed).message
    assert f"is encrypted with key {other.current.id}, which is not configured" in message
    assert "NOETL_CREDENTIAL_OLD_KEYS" in message


async def test_a_variable_of_the_worker_is_read_again_each_time(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first value", '{"token": "second value"}'):
        monkeypatch.setenv("KEYCHAIN_TEST", value)
        await vault.run(READS % "env, variable: KEYCHAIN_TEST")
    assert inputs_read(vault) == ["first value", {"token": "second value"}]
    monkeypatch.delenv("KEYCHAIN_TEST")
    [processed] = await vault.run(READS % "env, variable: KEYCHAIN_TEST")
    assert failure_of(processed).message == "keychain.entry: the variable KEYCHAIN_TEST is not set for this worker"


@pytest.mark.parametrize("value", ["123", '{"username": "a", "password": "b"}', "postgresql://ann:pw@db/shop"])
async def test_a_secret_of_the_worker_that_nothing_could_hide_is_refused(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("KEYCHAIN_TEST", value)
    [processed] = await vault.run(READS % "env, variable: KEYCHAIN_TEST")
    assert failure_of(processed).message == f"keychain.entry: the variable KEYCHAIN_TEST {TOO_SHORT}"
    with pytest.raises(ToolFailure) as failed:
        stage = vault.stage
        asker = Asker(stage.broker.bus, stage.clock, stage.command(stage.plan(READS % "credential")), "worker")
        await Keychain(stage.clock, {"pin": value}).named_credential(asker, "pin")
    assert failed.value.error.message == f"NOETL_CREDENTIAL_PIN {TOO_SHORT}"


async def test_a_file_of_the_worker_is_read(vault: Vault, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a file\n")
    await vault.run(READS % f"file, path: {file}")
    assert inputs_read(vault) == ["from a file"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read on this worker: No such file or directory"),
        (b"", "is empty"),
        (b"{broken", "starts like a JSON object but is not valid JSON"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"abc\n", TOO_SHORT),
        (b"x" * 70_000, "is larger than 65536 bytes"),
    ],
)
async def test_a_file_without_a_valid_secret_is_an_error(
    vault: Vault, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    [processed] = await vault.run(READS % f"file, path: {file}")
    assert failure_of(processed).message == f"keychain.entry: {file} {problem}"


@pytest.fixture
def locker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The sample plugin of the documentation, installed as the kind ``locker``; its source."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "plugins.md").read_text()
    source = page.partition("## A keychain kind")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "locker_plugin.py").write_text(source)
    about = tmp_path / "locker_plugin-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: locker-plugin\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[noetl_stream.keychain]\nlocker = locker_plugin:Locker\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    installed_kinds.cache_clear()
    yield source
    installed_kinds.cache_clear()


async def test_a_custom_kind_is_asked_once_per_execution(
    vault: Vault, locker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = installed_kinds().plugins["locker"]
    for _ in range(2):
        await vault.run(READS % "locker, drawer: 7")
    assert inputs_read(vault) == ["what lies in drawer 7"] * 2
    assert vault.hidden == ["entry"]
    monkeypatch.setattr(plugin, "resolve", short_resolve)
    [processed] = await vault.run(READS % "locker, drawer: 7", execution_id="execution-3")
    assert failure_of(processed).message == f"keychain.entry: the value from kind 'locker' {TOO_SHORT}"
    monkeypatch.setattr(plugin, "resolve", broken_resolve)
    await vault.run(READS % "locker, drawer: 7")
    assert inputs_read(vault)[2:] == ["what lies in drawer 7"]
    [processed] = await vault.run(READS % "locker, drawer: 7", execution_id="execution-2")
    assert failure_of(processed).message == "keychain.entry: kind 'locker': ValueError: the locker is jammed"


async def short_resolve(self: Any, settings: Any) -> str:
    return "abc"


async def broken_resolve(self: Any, settings: Any) -> str:
    raise ValueError("the locker is jammed")


async def credential_seen(vault: Vault, name: str, root: str = "", **changes: Any) -> Any:
    """What a tool is given for ``auth: name``, or the error."""
    found: list[Any] = []

    async def act(call: ToolCall) -> None:
        found.append(await call.credential(name))

    vault.stage.puppet.acts["act"] = act
    [processed] = await vault.run(f"- step: start\n  tool:\n  - {{name: act, kind: puppet}}\n{root}", **changes)
    return found[0] if found else failure_of(processed).message


async def test_auth_names_an_entry_first_then_a_stored_credential_then_the_workers_own(vault: Vault) -> None:
    await vault.keeper.put("both", "stored-value", "ann")
    await vault.keeper.put("other", "entry-value", "ann")
    root = "keychain: [{name: both, kind: credential, credential: other}]\n"
    assert await credential_seen(vault, "both", root) == "entry-value"
    assert await credential_seen(vault, "both") == "stored-value"
    assert await credential_seen(vault, "mine") == "worker-own-value"
    missing = "`noetl-stream credential set none` stores one, or set NOETL_CREDENTIAL_NONE for the worker"
    assert await credential_seen(vault, "none") == f"no credential named 'none': {missing}"


@pytest.mark.parametrize("text", ["postgresql://bob:s3cretpw@db/app", "Bearer s3cretpw", "{token: s3cretpw}", ""])
async def test_text_that_cannot_be_a_name_is_refused_without_being_shown(vault: Vault, text: str) -> None:
    """It may be a secret that was written where a name is due."""
    message = await credential_seen(vault, text)
    assert "s3cretpw" not in message
    assert "auth: {dsn: …}" in message
    assert "credential set NAME" in message


async def test_a_tool_learns_which_credentials_the_operator_configured(vault: Vault) -> None:
    """Those alone may reach a host on a private network."""
    await vault.keeper.put("both", "stored-value", "ann")
    found: dict[str, bool] = {}

    async def act(call: ToolCall) -> Any:
        for name in ("mine", "local_postgres", "both", "entry"):
            found[name] = await call.is_operators(name)

    vault.stage.puppet.acts["act"] = act
    root = "keychain: [{name: entry, kind: credential, credential: mine}]\n"
    await vault.run(f"- step: start\n  tool:\n  - {{name: act, kind: puppet}}\n{root}")
    assert found == {"mine": True, "local_postgres": True, "both": False, "entry": True}


async def test_a_secret_in_what_failed_to_render_is_hidden(vault: Vault) -> None:
    await vault.keeper.put("entry", "s3cret-value", "ann")
    steps = (READS % "credential").replace("keychain.entry }}", "workload[keychain.entry] }}")
    [processed] = await vault.run(steps)
    error = failure_of(processed)
    assert (error.kind, "***" in error.message, "s3cret" in error.message) == ("expression_error", True, False)


async def test_a_secret_used_by_auth_is_hidden_too(vault: Vault) -> None:
    await vault.keeper.put("both", "postgresql://ann:dsn-passw%2Frd@db/shop", "ann")

    async def act(call: ToolCall) -> Any:
        await call.credential("both")
        raise ToolFailure(ErrorInfo("connection", "password dsn-passw/rd was refused by db"), output="dsn-passw%2Frd")

    vault.stage.puppet.acts["act"] = act
    [processed] = await vault.run("- step: start\n  tool: [{name: act, kind: puppet}]\n")
    assert failure_of(processed).message == "password *** was refused by db"
    assert processed.outcome.output == "***"


async def test_a_tool_cannot_change_what_the_keychain_holds(vault: Vault) -> None:
    await vault.keeper.put("entry", {"password": "s3cret-value"}, "ann")
    seen: list[Any] = []

    async def act(call: ToolCall) -> None:
        credential = await call.credential("entry")
        for found in (call.inputs["said"], credential):
            seen.append(dict(found))
            found["password"] = "changed"

    vault.stage.puppet.acts["read"] = act
    for _ in range(2):
        await vault.run(READS % "credential")
    assert seen == [{"password": "s3cret-value"}] * 4
    assert vault.lookups == ["entry"]


async def test_an_execution_asks_once_until_the_cache_expires(vault: Vault) -> None:
    await vault.keeper.put("entry", "first value", "ann")
    await vault.run(READS % "credential")
    await vault.keeper.put("entry", "second value", "ann")
    await vault.run(READS % "credential")
    assert inputs_read(vault) == ["first value", "first value"]
    await vault.stage.advance(SECRET_KEPT_S)
    await vault.run(READS % "credential")
    assert inputs_read(vault)[2:] == ["second value"]
    assert vault.lookups == ["entry", "entry"]


async def test_another_execution_asks_for_itself_unless_the_scope_is_global(vault: Vault) -> None:
    await vault.keeper.put("entry", "first value", "ann")
    for kind, asked in (("credential", 2), ("credential, scope: global", 1)):
        vault.lookups.clear()
        for execution in (EXECUTION, "execution-2"):
            await vault.run(READS % kind, execution_id=execution)
        assert vault.lookups == ["entry"] * asked


@pytest.mark.parametrize("kind", ["credential", "credential, scope: global", "credential, credential: local_postgres"])
async def test_another_playbook_asks_for_itself_since_it_may_not_have_been_granted_it(vault: Vault, kind: str) -> None:
    await vault.keeper.put("entry", "first value", "ann")
    for changed in ("", "# another playbook\n"):
        vault.lookups.clear()
        await vault.run(READS % kind + changed, execution_id=EXECUTION if not changed else "execution-2")
        assert len(vault.lookups) == 1


async def test_another_playbook_asks_whether_a_credential_of_the_worker_is_for_it(vault: Vault) -> None:
    """The absence of a stored credential, after which the worker's own is used, is not remembered for all either."""
    for changed in ("", "# another playbook\n"):
        await vault.run(READS % "credential, credential: mine" + changed)
    assert vault.lookups == ["mine", "mine"]


async def test_tasks_at_once_ask_once(vault: Vault) -> None:
    await vault.keeper.put("entry", "a value", "ann")
    loop = "  loop: {in: [1, 2, 3, 4], iterator: n, spec: {mode: parallel, exec: local}}\n"
    steps = (READS % "credential").replace("  tool:\n", f"{loop}  tool:\n")
    plan = vault.stage.plan(steps)
    command = vault.stage.command(plan, items=[1, 2, 3, 4], max_in_flight=4)
    await vault.stage.issue(command)
    await vault.stage.soon(lambda: "loop.done" in vault.stage.names)
    assert inputs_read(vault) == ["a value"] * 4
    assert vault.lookups == ["entry"]


async def test_a_credential_refused_to_one_command_is_asked_for_again_by_the_next(stage: Stage) -> None:
    gate = asyncio.Event()

    async def find(asker: Asker, _name: str) -> Secret:
        await gate.wait()
        if asker.command.command_id == "command-1":
            raise ToolFailure.of("credential", "command command-1 has ended")
        return Secret("a value")

    plan, keychain = stage.plan(READS % "credential"), Keychain(stage.clock, {}, find)
    askers = [Asker(stage.broker.bus, stage.clock, stage.command(plan, f"command-{n}"), "worker") for n in (1, 2, 3)]
    asking = [asyncio.create_task(keychain.named_credential(asker, "entry")) for asker in askers]
    await stage.settle()
    gate.set()
    first, *others = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(first, ToolFailure)
    assert others == [Secret("a value")] * 2


async def test_a_missing_credential_is_remembered_for_a_moment(vault: Vault) -> None:
    for _ in range(2):
        assert await credential_seen(vault, "mine") == "worker-own-value"
    assert vault.lookups == ["mine"]
    await vault.keeper.put("mine", "stored by now", "ann")
    await vault.stage.advance(ABSENT_KEPT_S)
    assert await credential_seen(vault, "mine") == "stored by now"


OPENED = """
- step: start
  tool:
  - {name: opened, kind: secrets, credential: entry}
  - {name: read, kind: puppet, said: "{{ keychain.entry.token }}"}
"""


async def test_a_secrets_task_returns_metadata_and_opens_the_name(vault: Vault) -> None:
    await vault.keeper.put("entry", {"token": "first value"}, "ann")
    await vault.keeper.put("entry", {"token": "second value"}, "ann")
    opened, _ = await vault.run(OPENED)
    assert result_of(opened) == {"name": "entry", "version": 2, "expires_at": None}
    assert inputs_read(vault) == ["second value"]


async def test_an_opened_secret_is_resolved_again_on_another_worker(vault: Vault) -> None:
    await vault.keeper.put("entry", {"token": "a value"}, "ann")
    command = vault.stage.command(vault.stage.plan(OPENED))
    progress = Progress("read", runs=1, previous="opened", results={"opened": Outcome("ok")})
    await vault.stage.resume(command, Go(progress={"": progress}))
    await vault.stage.soon(lambda: "step.done" in vault.stage.names)
    assert inputs_read(vault) == ["a value"]


async def test_a_secrets_task_fails_where_the_credential_is_missing(vault: Vault) -> None:
    [processed] = await vault.run(OPENED)
    assert failure_of(processed).kind == "credential"


@pytest.mark.parametrize("tool", ["wait, for_s: 1, signal: x", "playbook, path: other, args: {a: x}"])
async def test_a_secret_in_what_would_be_recorded_is_refused(vault: Vault, tool: str) -> None:
    await vault.keeper.put("entry", "s3cret-value", "ann")
    tool = {
        "wait": 'wait, signal: "{{ keychain.entry }}", timeout_s: 1',
        "play": 'playbook, path: other, args: {a: "{{ keychain.entry }}"}',
    }[tool[:4]]
    steps = f"- step: start\n  tool: {{kind: {tool}}}\nkeychain: [{{name: entry, kind: credential}}]\n"
    [processed] = await vault.run(steps)
    error = failure_of(processed)
    assert (error.kind, error.message.endswith("cannot hold a secret: leave out keychain.entry")) == (
        "invalid_input",
        True,
    )


class TokenServer:
    """Gives out ``token-1``, ``token-2``, …; ``/guarded`` takes those in ``taken``."""

    def __init__(self) -> None:
        self.given = 0
        self.expires_in: Any = 1000
        self.taken: Callable[[str], bool] = lambda token: True
        self.answer: Callable[[], web.Response] | None = None
        self.lookups: list[tuple[dict[str, str], str | None]] = []
        self.url = ""

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.lookups.append((form, request.headers.get("Authorization")))
        if self.answer is not None:
            return self.answer()
        self.given += 1
        shown = {"access_token": f"token-{self.given}", "token_type": "Bearer", "expires_in": self.expires_in}
        return web.json_response(shown)

    async def guarded(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return web.json_response({"took": len(token)}, status=200 if self.taken(token) else 401)


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    server = TokenServer()
    application = web.Application()
    application.router.add_post("/token", server.token)
    application.router.add_get("/guarded", server.guarded)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = "http://{}:{}".format(*runner.addresses[0])
    yield server
    await runner.cleanup()


def with_token(tokens: TokenServer, task: str = 'puppet, said: "{{ keychain.api }}"', settings: str = "") -> str:
    more = settings or "client_id: me, client_secret: hush-hush"
    return (
        f"- step: start\n  tool:\n  - {{name: read, kind: {task}}}\n"
        f"keychain:\n- {{name: api, kind: oauth2_client_credentials, token_url: '{tokens.url}/token', {more}}}\n"
    )


async def test_a_token_is_fetched_and_kept_until_shortly_before_its_end(vault: Vault, tokens: TokenServer) -> None:
    for _ in range(2):
        await vault.run(with_token(tokens), execution_id="execution-2")
    await vault.stage.advance(939)
    await vault.run(with_token(tokens))
    assert [value["access_token"] for value in inputs_read(vault)] == ["token-1"] * 3
    assert vault.hidden == ["api"] * 2, "in each execution once"
    await vault.stage.advance(1)
    await vault.run(with_token(tokens))
    assert inputs_read(vault)[3] == {"access_token": "token-2", "token_type": "Bearer"}


async def test_another_playbook_fetches_its_own_token(vault: Vault, tokens: TokenServer) -> None:
    """The settings may be the same, and the credential in them not granted to it."""
    for changed in ("", "# another playbook\n"):
        await vault.run(with_token(tokens) + changed)
    assert [value["access_token"] for value in inputs_read(vault)] == ["token-1", "token-2"]


@pytest.mark.parametrize("expires_in", [None, "soon"])
async def test_a_token_that_does_not_say_how_long_it_lives_is_kept_for_a_while(
    vault: Vault, tokens: TokenServer, expires_in: Any
) -> None:
    tokens.expires_in = expires_in
    await vault.run(with_token(tokens))
    await vault.stage.advance(UNKNOWN_LIFETIME_S)
    await vault.run(with_token(tokens))
    assert tokens.given == 2


async def test_client_credentials_go_into_a_header_or_the_form(vault: Vault, tokens: TokenServer) -> None:
    await vault.keeper.put("client", {"client_id": "ann b", "client_secret": "hush:hush"}, "ann")
    await vault.run(with_token(tokens, settings="credential: client, scopes: [a, b], audience: them"))
    await vault.run(with_token(tokens, settings="credential: client, auth_method: client_secret_post"))
    (form, authorization), (other_form, other_authorization) = tokens.lookups
    assert form == {"grant_type": "client_credentials", "scope": "a b", "audience": "them"}
    assert authorization == "Basic YW5uK2I6aHVzaCUzQWh1c2g="
    assert other_form == {"grant_type": "client_credentials", "client_id": "ann b", "client_secret": "hush:hush"}
    assert other_authorization is None


async def test_http_sends_the_token_and_fetches_another_once_when_it_is_refused(
    vault: Vault, tokens: TokenServer
) -> None:
    task = f"http, url: '{tokens.url}/guarded', auth: api"
    tokens.taken = lambda token: token == "token-2"
    [processed] = await vault.run(with_token(tokens, task))
    assert result_of(processed)["data"] == {"took": len("token-2")}
    tokens.taken = lambda token: False
    [processed] = await vault.run(with_token(tokens, task))
    assert failure_of(processed).code == "401"
    assert tokens.given == 3


async def test_a_token_in_a_template_is_fetched_again_too(vault: Vault, tokens: TokenServer) -> None:
    header = "Bearer {{ keychain.api.access_token }}"
    task = f"http, url: '{tokens.url}/guarded', headers: {{Authorization: '{header}'}}"
    tokens.taken = lambda token: token == "token-2"
    [processed] = await vault.run(with_token(tokens, task))
    assert result_of(processed)["status"] == 200


async def test_a_refusal_without_a_token_is_not_tried_again(vault: Vault, tokens: TokenServer) -> None:
    tokens.taken = lambda token: False
    await vault.keeper.put("api", "a stored token", "ann")
    steps = f"- step: start\n  tool: {{kind: http, url: '{tokens.url}/guarded', auth: api}}\n"
    [processed] = await vault.run(steps)
    assert failure_of(processed).code == "401"
    assert vault.lookups == ["api"]


async def test_a_secrets_task_returns_a_tokens_expiry(vault: Vault, tokens: TokenServer) -> None:
    [processed] = await vault.run(with_token(tokens, "secrets, credential: api"))
    shown = result_of(processed)
    assert (shown["name"], shown["version"]) == ("api", None)
    assert shown["expires_at"].startswith("2025-06-15T15:23:20")


@pytest.mark.parametrize(
    ("answer", "problem", "retryable"),
    [
        (lambda: web.json_response({"error": "invalid_client"}, status=401), "returned 401", False),
        (lambda: web.Response(status=503), "returned 503", True),
        (lambda: web.json_response({"token": "x"}), "the response (200) has no access_token", False),
        (lambda: web.Response(status=302, headers={"Location": "/token"}), "the response (302) has no", False),
        (lambda: web.Response(text="[1]"), "has no access_token", False),
        (lambda: web.Response(body=b" " * 300_000), "exceeds 262,144 bytes, which no setting changes", False),
    ],
)
async def test_a_token_that_cannot_be_had_is_an_error_of_the_credential(
    vault: Vault, tokens: TokenServer, answer: Callable[[], web.Response], problem: str, retryable: bool
) -> None:
    tokens.answer = answer
    [processed] = await vault.run(with_token(tokens))
    error = failure_of(processed)
    assert (error.kind, error.retryable) == ("credential", retryable)
    assert error.message.startswith("keychain.api: no token") and problem in error.message
    assert "spec." not in error.message and "timeout." not in error.message


async def test_a_token_server_that_is_silent_is_named_with_the_bound_of_a_request_for_a_token() -> None:
    class Silent(NoopTool):
        async def run(self, call: ToolCall) -> ToolResult:
            raise ToolFailure.of("timeout", "no connection in time (timeout.connect)", retryable=True)

    settings = OauthSettings(token_url="https://login.example/token?key=1", client_id="me", client_secret="hush-hush")
    with pytest.raises(ToolFailure) as failed:
        await fetch_token(Silent(), settings, "me", "hush-hush")
    message = "no token from https://login.example/token: no connection within 10 s"
    assert failed.value.error == ErrorInfo("credential", message, retryable=True)


async def test_a_replaced_client_is_used_after_its_old_secret_was_refused(vault: Vault, tokens: TokenServer) -> None:
    settings = "client_id: me, credential: client"
    await vault.keeper.put("client", "older secret", "ann")
    tokens.answer = lambda: web.Response(status=401)
    await vault.run(with_token(tokens, settings=settings))
    await vault.keeper.put("client", "newer secret", "ann")
    tokens.answer = None
    await vault.run(with_token(tokens, settings=settings))
    assert tokens.lookups[1][1] == "Basic bWU6bmV3ZXIrc2VjcmV0"


async def test_closing_a_worker_ends_its_questions(stage: Stage) -> None:
    worker = await stage.start(credentials=OWN, secrets=find_stored)
    await stage.issue(stage.command(stage.plan(READS % "credential")))
    await worker.close()
    assert not [task for task in asyncio.all_tasks() if "Keychain" in repr(task.get_coro())]

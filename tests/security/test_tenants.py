"""Teams on one installation: what a playbook may use is decided by its path, by servers, each time it is used."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from access_stack import Stack as AccessStack
from server_stage import Stage
from waiting_stage import error_of

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.adapters.simulated_time import cancel_all_tasks
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.gateway.access.scoped import Scopes
from noetl_stream.model.events import StepScheduled, StepStarted, StepSuspended
from noetl_stream.model.events.fact_parts import ChildCall, Wait
from noetl_stream.model.ids import derive, digest_of
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.paging import read_cursor
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import ExecutionFilter, Start
from noetl_stream.ports.stores.catalog import GrantsRevision
from noetl_stream.protocol import subjects
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.settings.grants import DefaultGrants, Grants, GrantsFile, GrantsSource, read_grants
from noetl_stream.storage.grants import REFRESH_S, RegisteredGrants
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.pipeline import NoopTool, SecretsTool
from noetl_stream.worker.child_playbooks import pin_playbook
from noetl_stream.worker.secrets.keychain import NotStored, find_stored
from noetl_testkit.keys import CAPABILITIES
from noetl_testkit.memory.access import MemoryAudit, MemoryGrants
from noetl_testkit.simulation.work import WorkTool, work

GRANTS = """
grants:
- paths: [team/a]
  credentials: [warehouse_a, "common_*"]
  calls: [team/a, shared]
  pools: [default]
  kinds: [work]
- paths: [team/b]
  credentials: ["*"]
  calls: ["*"]
  pools: ["*"]
  kinds: ["*"]
- paths: [shared/**]
  pools: [default]
  kinds: [work]
"""

KEYS = KeyRing(read_key(new_key(), "a test"))


def text(path: str, *tasks: dict[str, Any], pool: str = "default", keychain: Any = None) -> str:
    """A playbook at ``path`` with one step."""
    step = {"step": "only", "spec": {"pool": pool}, "tool": list(tasks or [{"name": "it", **work("done")}])}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "it", "path": path}}
    return json.dumps({**head, **({"keychain": keychain} if keychain else {}), "workflow": [step]})


def calling(path: str) -> dict[str, Any]:
    return {"name": "call", "kind": "playbook", "path": path}


@pytest.fixture
def audit() -> MemoryAudit:
    return MemoryAudit()


@pytest.fixture
def in_force(tmp_path: Path) -> GrantsSource:
    (tmp_path / "grants.yaml").write_text(GRANTS)
    return GrantsFile(tmp_path / "grants.yaml")


@pytest.fixture
async def stage(in_force: GrantsSource, audit: MemoryAudit) -> AsyncIterator[Stage]:
    """A server with grants and a credential store; the test starts executions."""
    made = Stage()
    made.kinds = {"work": WorkTool.spec, "noop": NoopTool.spec, "secrets": SecretsTool.spec}
    made.grants = in_force
    credentials = MemoryCredentials(made.clock)
    for name in ("warehouse_a", "warehouse_b", "common_mail", "sales.crm"):
        await DirectCredentials(credentials, KEYS).put(name, f"secret-of-{name}", "ann")
    made.secrets = SecretsResponder(credentials, audit, made.clock, KEYS)
    await made.server()
    yield made
    await cancel_all_tasks()


async def end_of(stage: Stage, source: str) -> tuple[str, str]:
    """How an execution of this text ends: its status, and why."""
    execution_id = derive("tenants", source)
    await stage.request(execution_id, f"request-{execution_id}", source)
    row = await stage.ended(execution_id)
    return row.status, "" if row.error is None else error_of(row)["message"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (text("team/a", keychain=[{"name": "warehouse_b", "kind": "credential"}]), "use the credential `warehouse_b`"),
        (
            text("team/a/x", keychain=[{"name": "mine", "kind": "credential", "credential": "warehouse_b"}]),
            "use the credential `warehouse_b`",
        ),
        (
            text(
                "team/a",
                keychain=[
                    {
                        "name": "crm",
                        "kind": "oauth2_client_credentials",
                        "token_url": "https://x.example/token",
                        "client_id": "me",
                        "credential": "warehouse_b",
                    }
                ],
            ),
            "use the credential `warehouse_b`",
        ),
        (text("team/a", pool="b-only"), "run in the pool `b-only`"),
        (text("shared/x", keychain=[{"name": "warehouse_a", "kind": "credential"}]), "use the credential"),
        (text("team/ab"), "run in the pool `default`"),
        (text("elsewhere"), "run in the pool `default`"),
    ],
)
async def test_a_playbook_that_names_what_it_was_not_granted_does_not_start(
    stage: Stage, source: str, reason: str
) -> None:
    status, message = await end_of(stage, source)
    assert status == "failed"
    assert f"may not {reason}" in message
    assert message.startswith("line ")


async def test_a_kind_that_was_not_granted_is_refused(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "grants.yaml").write_text(GRANTS.replace("kinds: [work]", "kinds: [http]"))
    status, message = await end_of(stage, text("team/a"))
    assert (status, "may not have tasks of the kind `work`" in message) == ("failed", True)


async def test_a_playbook_uses_what_its_path_was_granted(stage: Stage) -> None:
    stage.start_worker()
    keychain = [{"name": "warehouse_a", "kind": "credential"}, {"name": "common_mail", "kind": "credential"}]
    assert await end_of(stage, text("team/a/x", keychain=keychain)) == ("completed", "")
    assert await end_of(stage, text("team/b", keychain=[{"name": "warehouse_a", "kind": "credential"}])) == (
        "completed",
        "",
    )


async def test_a_suggestion_does_not_name_the_credential_of_another_team(stage: Stage) -> None:
    _, message = await end_of(stage, text("team/a", keychain=[{"name": "common_mailx", "kind": "credential"}]))
    assert "did you mean `common_mail`" in message
    keychain = [{"name": "common_x", "kind": "credential", "credential": "common_warehouse_b"}]
    _, message = await end_of(stage, text("team/a", keychain=keychain))
    assert "warehouse_b`?" not in message


async def test_a_worker_gets_a_credential_for_the_playbooks_that_were_granted_it(
    stage: Stage, audit: MemoryAudit
) -> None:
    """Also where a template makes the name, and for a worker that asks for what no playbook named."""
    hand = await stage.manual_worker()
    await stage.request(derive("tenants", "asks"), "request-1", text("team/a"))
    command, _ = await hand.take()
    questions = stage.asker(command)
    assert (await find_stored(questions, "warehouse_a")).value == "secret-of-warehouse_a"
    for name in ("warehouse_b", "no_such_name"):
        with pytest.raises(ToolFailure, match=f"playbook team/a may not use the credential `{name}`"):
            await find_stored(questions, name)
    with pytest.raises(NotStored) as missing:
        await find_stored(questions, "common_warehouse_b")
    assert missing.value.near == ""
    entries = reversed(await audit.page(10, None, None))
    assert [(entry.attempt.target, entry.answer.status) for entry in entries if entry.answer] == [
        ("warehouse_a", 200),
        ("warehouse_b", 403),
        ("no_such_name", 403),
        ("common_warehouse_b", 404),
    ]


async def test_a_change_of_the_grants_counts_at_once(stage: Stage, tmp_path: Path) -> None:
    hand = await stage.manual_worker()
    await stage.request(derive("tenants", "asks"), "request-1", text("team/a"))
    command, _ = await hand.take()
    questions = stage.asker(command)
    await find_stored(questions, "warehouse_a")
    (tmp_path / "grants.yaml").write_text(GRANTS.replace("[warehouse_a, ", "["))
    with pytest.raises(ToolFailure, match="may not use the credential"):
        await find_stored(questions, "warehouse_a")


async def test_a_playbook_calls_those_that_it_was_granted(stage: Stage) -> None:
    stage.start_worker()
    await stage.register(text("shared/mail"))
    await stage.register(text("team/b/pay"))
    assert await end_of(stage, text("team/a", calling("shared/mail"))) == ("completed", "")
    for path in ("team/b/pay", "team/b/no_such_playbook", "team/b"):
        status, message = await end_of(stage, text("team/a", calling(path)))
        assert status == "failed"
        assert message.endswith(
            f"playbook team/a may not call the playbook `{path}`: the operator's grants do not give it that"
        )


async def test_a_suggestion_does_not_name_the_playbook_of_another_team(stage: Stage) -> None:
    stage.start_worker()
    await stage.register(text("shared_secrets/mail"))
    _, message = await end_of(stage, text("team/a", calling("shared/secrets/mail")))
    assert "no playbook shared/secrets/mail in the catalog" in message
    assert "shared_secrets" not in message


async def test_a_playbook_that_may_not_be_called_does_not_start_whatever_its_caller_says(stage: Stage) -> None:
    """Here a server seems to have resolved the path to another playbook."""
    source = text("team/b/pay")
    await stage.blobs.put(subjects.playbook_key(digest_of(source)), source.encode())
    hand = await stage.manual_worker()
    execution_id = derive("tenants", "forges")
    await stage.request(execution_id, "request-1", text("team/a", calling("shared/mail")))
    command, delivery = await hand.take()
    pin = CAPABILITIES.pin(execution_id, digest_of(source), "shared/mail")
    call = ChildCall(digest_of(source), "shared/mail", pin=pin)
    await hand.report(
        command,
        hand.run_of(command, delivery),
        0,
        0,
        StepStarted("hand"),
        StepSuspended([Wait(task="call", child=call)]),
    )
    await stage.until(lambda: len(stage.tables.executions) == 2)
    [child] = stage.tables.executions.keys() - {execution_id}
    row = await stage.ended(child)
    assert row.status == "failed"
    assert "playbook team/a may not call the playbook `team/b/pay`" in error_of(row)["message"]
    assert not any(isinstance(fact, StepScheduled) for fact in await stage.facts(child))


@pytest.mark.parametrize("is_pinned", [True, False])
async def test_a_call_that_is_not_granted_any_more_does_not_start(
    stage: Stage, tmp_path: Path, is_pinned: bool
) -> None:
    """Nor one that a worker reports which has asked no server."""
    await stage.register(text("shared/mail"))
    hand = await stage.manual_worker()
    execution_id = derive("tenants", "calls")
    await stage.request(execution_id, "request-1", text("team/a", calling("shared/mail")))
    command, delivery = await hand.take()
    found = await pin_playbook(stage.asker(command), "shared/mail", None)
    (tmp_path / "grants.yaml").write_text(GRANTS.replace("calls: [team/a, shared]", "calls: [team/a]"))
    call = ChildCall(found.digest, found.path, pin=found.pin if is_pinned else "")
    facts = StepStarted("hand"), StepSuspended([Wait(task="call", child=call)])
    await hand.report(command, hand.run_of(command, delivery), 0, 0, *facts)
    await stage.pass_time(5)
    for child in stage.tables.executions.keys() - {execution_id}:
        row = await stage.ended(child)
        assert (row.status, is_pinned) == ("failed", True)
        assert "playbook team/a may not call the playbook `shared/mail`" in error_of(row)["message"]
    started = [fact for one in stage.tables.executions for fact in await stage.facts(one)]
    assert {fact.step_run_id for fact in started if isinstance(fact, StepScheduled)} == {command.step_run_id}


# What playbooks may use that no grant covers


@pytest.mark.parametrize(
    ("path", "name", "may"),
    [
        ("team/a/x", "team.a.warehouse", True),
        ("team/a", "team.a.deep.warehouse", True),
        ("team/b", "team.a.warehouse", False),
        ("team/x", "team.a.warehouse", False),
        ("team/x", "team.x.warehouse", True),
        ("team/ab", "team.a.warehouse", False),
        ("sales/x", "sales.crm", True),
        ("sales/x", "salesforce.crm", False),
        ("sales", "sales", False),
        ("sales/x", "warehouse", False),
        ("team.a/x", "team.a.warehouse", False),
        ("team*/x", "teams.warehouse", False),
        ("[t]eam/x", "team.x.warehouse", False),
    ],
)
def test_a_credential_belongs_to_the_namespace_that_its_name_begins_with(path: str, name: str, may: bool) -> None:
    assert Grants((), ("team/a",), "own").allows(path, "credentials", name) is may


def test_by_default_a_playbook_uses_its_own_namespace_in_any_pool() -> None:
    own = Grants((), ("team/a",), "own")
    calls = ("team/a/x", "team/a", "team/ab", "team/b", "sales/x")
    assert [own.allows("team/a/report", "calls", name) for name in calls] == [True, True, False, False, False]
    assert not own.allows("team/b", "calls", "team/a/x"), "a namespace within another is apart"
    assert own.allows("team/a", "pools", "any") and own.allows("team/a", "kinds", "shell")
    assert not own.allows("team/a", "limits", "shared")


def test_the_default_is_for_what_no_grant_covers(tmp_path: Path) -> None:
    (tmp_path / "grants.yaml").write_text("grants: [{paths: [sales], credentials: [mailer]}]")
    for default, may in (("own", [True, False]), ("everything", [True, True]), ("nothing", [False, False])):
        found = read_grants(tmp_path / "grants.yaml", default)
        assert [found.allows("ops/x", "credentials", name) for name in ("ops.db", "mailer")] == may
        assert [found.allows("sales/x", "credentials", name) for name in ("sales.db", "mailer")] == [False, True]
        assert not found.allows("sales/x", "calls", "sales/y")


@pytest.mark.parametrize(
    ("in_force", "statuses"),
    [
        (DefaultGrants("own"), ["completed", "failed"]),
        (DefaultGrants("everything"), ["completed", "completed"]),
        (DefaultGrants(None), ["completed", "completed"]),
        (DefaultGrants("nothing"), ["failed", "failed"]),
    ],
)
async def test_a_server_holds_the_default_of_the_installation(stage: Stage, statuses: list[str]) -> None:
    stage.start_worker()
    keychain = [{"name": "crm", "kind": "credential", "credential": "sales.crm"}]
    found = [(await end_of(stage, text(path, keychain=keychain)))[0] for path in ("sales/x", "team/a")]
    assert found == statuses


async def test_a_server_holds_what_an_admin_registers_while_it_runs() -> None:
    made, store = Stage(), MemoryGrants()
    made.kinds = {"work": WorkTool.spec}
    made.grants = RegisteredGrants(store, "own")
    await made.server()
    made.start_worker()
    assert (await end_of(made, text("sales/x")))[0] == "completed"
    await store.add(GrantsRevision(1, "grants: [{paths: [sales], pools: [default], kinds: [http]}]", 0, "token:boss"))
    await made.pass_time(REFRESH_S + 1)
    status, message = await end_of(made, text("sales/y"))
    assert (status, "may not have tasks of the kind `work`" in message) == ("failed", True)
    await cancel_all_tasks()


# Lists of a caller with paths


@pytest.fixture
async def crowded() -> Operations:
    """A catalog and executions, most of them of others, as a caller with the path ``team/a`` gets them."""
    stack = AccessStack(ManualClock())
    ids = {f"secret-execution-{number:03}": "elsewhere/secret-project" for number in range(25)}
    await stack.add_executions(**ids | {"e000": "team/a", "e001": "team/a"})
    await stack.register("elsewhere/secret-project", "team/a/report", "team/ab")
    return Scopes()(stack.operations, ("team/a",))


async def test_a_cursor_does_not_say_what_is_left_out(crowded: Operations) -> None:
    """It names an item of the caller's, and is there only if another of the caller's follows."""
    first = await crowded.executions.page(ExecutionFilter(), 1, None)
    assert ([item.execution_id for item in first.items], first.next is None) == (["e001"], False)
    assert read_cursor(first.next, str) == "e001"
    last = await crowded.executions.page(ExecutionFilter(), 1, first.next)
    assert ([item.execution_id for item in last.items], last.next) == (["e000"], None)
    assert (await crowded.playbooks.page("", {}, 1, None)).next is None


@pytest.mark.parametrize("spoil", [lambda text: text[:-3], lambda text: text[:2] + "AAA" + text[5:], lambda _: "~"])
async def test_a_cursor_that_was_changed_is_refused(crowded: Operations, spoil: Callable[[str], str]) -> None:
    first = await crowded.executions.page(ExecutionFilter(), 1, None)
    assert first.next is not None
    with pytest.raises(UsageError, match="not a cursor of this list"):
        await crowded.executions.page(ExecutionFilter(), 1, spoil(first.next))


@pytest.mark.parametrize("verb", ["get", "versions", "plan", "graph", "start"])
async def test_an_error_does_not_suggest_the_playbook_of_another_team(crowded: Operations, verb: str) -> None:
    near = "team/a/b"  # next to `team/ab`
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "get": lambda: crowded.playbooks.get(near, None),
        "versions": lambda: crowded.playbooks.versions(near),
        "plan": lambda: crowded.playbooks.plan(near, None),
        "graph": lambda: crowded.playbooks.graph(near, None),
        "start": lambda: crowded.executions.start(Start(path=near), "token:ci"),
    }
    with pytest.raises(NotFound) as missing:
        await calls[verb]()
    assert "team/ab" not in str(missing.value)


async def test_an_error_suggests_a_playbook_of_the_callers_own(crowded: Operations) -> None:
    with pytest.raises(NotFound, match="did you mean `team/a/report`"):
        await crowded.playbooks.get("team/a/reporf", None)


@pytest.mark.parametrize("path", ["team/a/../b", "team/./a", "team//a", "team/a/", "../team/a", ".", "/"])
def test_the_path_of_a_playbook_has_no_dots_and_no_empty_parts(path: str) -> None:
    """``team/a/../b`` would count as a part of ``team/a``."""
    checked = check(text(path), {"work": WorkTool.spec})
    assert checked.plan is None
    assert "metadata.path" in checked.diagnostics[0].message


# The grants file


def grants(tmp_path: Path, written: str) -> Grants:
    file = tmp_path / "some.yaml"
    file.write_text(written)
    return read_grants(file)


def test_a_path_is_granted_what_any_entry_for_it_gives(tmp_path: Path) -> None:
    found = grants(tmp_path, GRANTS + '- paths: ["*"]\n  kinds: [noop, "h*"]\n')
    assert found.names_for("team/a/x", "kinds") == ("work", "noop", "h*")
    assert found.allows("team/a/x", "kinds", "http")
    assert found.allows("nowhere", "kinds", "http")
    assert not found.allows("nowhere", "pools", "default")
    assert not found.allows("team/ab", "credentials", "warehouse_a")
    assert found.allows("team/a", "calls", "team/a/deep/below") and not found.allows("team/a", "calls", "team/ab")
    assert not found.allows("shared", "calls", "shared/x")


def test_a_namespace_is_the_longest_that_the_operator_declares_else_the_first_part_of_the_path(tmp_path: Path) -> None:
    declared = grants(tmp_path, "namespaces: [team, team/a/**]\ngrants: []")
    paths = ("team/b/x", "team/a", "team/a/x", "team/ab", "other/x/y", "lonely")
    assert [declared.namespace_of(path) for path in paths] == ["team", "team/a", "team/a", "team", "other", "lonely"]
    assert grants(tmp_path, "grants: []").namespace_of("team/a/x") == "team"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("namespaces: team\ngrants: []", "namespaces must be a list"),
        ("namespaces: [../b]\ngrants: []", "'../b' is not a path"),
        ("grants: 5", "must have `grants`"),
        ("grants: []\nmore: 1", "must have `grants`"),
        ("grants: [5]", "grant 1 must be a mapping with `paths`"),
        ("grants: [{kinds: [http]}]", "grant 1 must be a mapping with `paths`"),
        ("grants: [{paths: [a], kind: [http]}]", "and any of credentials, calls, pools, kinds, limits"),
        ("grants: [{paths: []}]", "grant 1: paths is empty"),
        ("grants: [{paths: a}]", "grant 1: paths must be a list"),
        ("grants: [{paths: [a], pools: [7]}]", "grant 1: pools must be a list of at most 1000 texts"),
        ("grants: [{paths: [team/../b]}]", "'team/../b' is not a path"),
        ("grants: [{paths: [team/*]}]", "is not a path"),
        ("grants: [{paths: [a], calls: [x//y]}]", "grant 1: calls: 'x//y' is not a path"),
        ("grants: [{paths: [a]", ":1: "),
    ],
)
def test_a_grants_file_with_a_mistake_is_refused_with_its_place(tmp_path: Path, written: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        grants(tmp_path, written)
    assert reason in str(refused.value)
    assert "some.yaml" in str(refused.value)


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_grants_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "grants.yaml"
    file.write_text(GRANTS)
    file.chmod(mode)
    with pytest.raises(UsageError, match="users other than its owner may write it"):
        read_grants(file)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_text("grants: [broken"),
        lambda file: file.write_text("grants: [{paths: [a], kinds: 7}]"),
        lambda file: file.unlink(),
        lambda file: (file.write_text(GRANTS + "\n"), file.chmod(0o666)),
    ],
)
def test_a_change_that_is_invalid_leaves_the_grants_in_force(
    tmp_path: Path, spoil: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "grants.yaml"
    file.write_text(GRANTS)
    source = GrantsFile(file)
    before = source.current()
    spoil(file)
    assert source.current() == before
    assert "the grants stay as they were" in caplog.text


def test_the_grants_in_the_documents_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "access.md").read_text()
    block = page.split("## Grants")[1].split("```yaml\n")[1].split("```")[0]
    assert grants(tmp_path, block).allows("team/a/x", "credentials", "shared_mail")

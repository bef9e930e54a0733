"""A token with paths: what lies elsewhere is not listed, not found, not allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from access_stack import Stack, playbook
from msgspec.structs import replace

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.errors import Forbidden, NoetlError, NotFound, PlaybookRefused, UsageError
from noetl_stream.gateway.access.authentication import Authentication
from noetl_stream.gateway.access.scoped import Scopes
from noetl_stream.model.bundles import named_bundle, zip_of
from noetl_stream.model.envelope import envelope
from noetl_stream.model.events import CancelRequested
from noetl_stream.model.ids import uuid7
from noetl_stream.model.rights import GrantsDefault
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.executions import ExecutionFilter, Executions, RerunOptions, Start, StepRunRange
from noetl_stream.ports.operations.playbooks import Playbooks
from noetl_stream.ports.operations.reading.events import FROM_THE_START, EventFilter, FeedEvent, LogFilter
from noetl_stream.ports.operations.reading.timelines import IterationRange, TimeRange
from noetl_stream.ports.operations.reading.views import Views
from noetl_stream.ports.operations.selections import BulkOrder
from noetl_stream.ports.operations.verbs import DocumentPage
from noetl_stream.sealing.data_references import DataReference
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.settings.grants import DefaultGrants
from noetl_stream.storage.grants import REFRESH_S, grants_in_force
from noetl_testkit.waiting import until_it_is

PATHS = ("team/a",)
EVERYTHING = ExecutionFilter()


async def filled(clock: ManualClock) -> Stack:
    made = Stack(clock)
    await made.add_executions(e1="team/a/x", e2="other/x", e3="team/ab", e4="team/a", e5="other/x")
    await made.register("team/a/x", "other/x", "team/ab")
    return made


@pytest.fixture
async def stack(clock: ManualClock) -> Stack:
    return await filled(clock)


@pytest.fixture
def scoped(stack: Stack) -> Operations:
    return Scopes()(stack.operations, PATHS)


def test_without_paths_a_token_is_not_narrowed(stack: Stack) -> None:
    assert Scopes()(stack.operations, ()) is stack.operations


async def test_a_text_that_starts_often_is_checked_once_for_its_paths(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes, checks = Scopes(), Counter[str]()
    check = stack.operations.playbooks.check

    async def counted(source: bytes, name: str) -> object:
        checks[name] += 1
        return await check(source, name)

    monkeypatch.setattr(stack.operations.playbooks, "check", counted)
    for _ in range(3):  # each request makes its own operations
        executions = scopes(stack.operations, PATHS).executions
        with pytest.raises(Forbidden, match="does not cover other/x"):
            await executions.start(Start(playbook=playbook("other/x")), "token:ci")
    assert checks == {"playbook": 1}


# Executions


BY_ID: dict[str, Callable[[Operations, str], Awaitable[object]]] = {
    "get": lambda operations, one: operations.executions.get(one),
    "wait": lambda operations, one: operations.executions.wait(one, 0),
    "result": lambda operations, one: operations.executions.result(one),
    "result_pieces": lambda operations, one: operations.executions.result_pieces(one),
    "file": lambda operations, one: operations.executions.file(one, DataReference("k", 0, "", "")),
    "table": lambda operations, one: operations.executions.table(one, DataReference("k", 0, "", ""), 1),
    "steps": lambda operations, one: operations.executions.steps(one),
    "runs": lambda operations, one: operations.executions.runs(one, StepRunRange()),
    "run_result": lambda operations, one: operations.executions.run_result(one, "s"),
    "iterations": lambda operations, one: operations.executions.iterations(one, "s", 10, None),
    "events": lambda operations, one: operations.executions.events(one, 0, 10),
    "logs": lambda operations, one: operations.executions.logs(one, LogFilter(), FROM_THE_START, 10),
    "ctx": lambda operations, one: operations.executions.ctx(one),
    "ask": lambda operations, one: operations.executions.ask(one, CancelRequested("r", "token:ci")),
    "rerun": lambda operations, one: operations.executions.rerun(one, RerunOptions(), "token:ci"),
    "why": lambda operations, one: operations.executions.why(one),
    "delete": lambda operations, one: operations.executions.delete(one, "token:ci"),
    "views.state": lambda operations, one: operations.views.state(one, None),
    "views.graph": lambda operations, one: operations.views.graph(one),
    "views.timeline": lambda operations, one: operations.views.timeline(one, TimeRange()),
    "views.strip": lambda operations, one: operations.views.strip(one, "s", IterationRange(), 10),
    "views.iterations": lambda operations, one: operations.views.iterations(one, "s", IterationRange(), 10),
    "views.changes": lambda operations, one: operations.views.changes(one, None, 10, None),
    "views.calls": lambda operations, one: operations.views.calls(one, 10, None),
    "views.lineage": lambda operations, one: operations.views.lineage(one, 10, None),
    "views.events": lambda operations, one: operations.views.events(one, EventFilter(), 10),
    "views.diff": lambda operations, one: operations.views.diff(one, "e1", "all", 10, None),
    "feed": lambda operations, one: operations.feed.execution(one, 0),
}


def test_every_verb_of_an_execution_is_tried_here(scoped: Operations) -> None:
    verbs = {name for name in vars(Executions) if not name.startswith("_")}
    verbs |= {f"views.{name}" for name in vars(Views) if not name.startswith("_")}
    assert verbs - {"start", "page"} == BY_ID.keys() - {"feed"}


@pytest.mark.parametrize("verb", BY_ID)
async def test_an_execution_of_another_path_is_not_there(scoped: Operations, verb: str) -> None:
    messages = []
    for one in ("e2", "e3"):
        with pytest.raises(NotFound) as refused:
            await BY_ID[verb](scoped, one)
        messages.append(str(refused.value).replace(one, "…"))
    assert len(set(messages)) == 1


async def test_a_selection_acts_only_on_covered_executions(scoped: Operations, stack: Stack) -> None:
    ids = ["e1", "e2", "e3", "e4", "e6"]
    by_id = BulkOrder("delete", ids)
    tried = await scoped.selections.act(replace(by_id, dry_run=True), "token:ci")
    assert [item.outcome for item in tried.items] == ["would", "skipped", "skipped", "would", "skipped"]
    assert {item.path for item in tried.items} == {"team/a/x", "team/a", None}
    by_status = BulkOrder("delete", chosen=ExecutionFilter(status=("completed",)), dry_run=True)
    assert [item.execution_id for item in (await scoped.selections.act(by_status, "token:ci")).items] == ["e4", "e1"]
    with pytest.raises(Forbidden, match="does not cover other"):
        await scoped.selections.act(BulkOrder("delete", chosen=ExecutionFilter(path="other")), "token:ci")
    with pytest.raises(UsageError, match="nothing is selected"):
        await scoped.selections.act(BulkOrder("delete"), "token:ci")
    acted = await scoped.selections.act(BulkOrder("delete", ["e2", "e3", "e6"]), "token:ci")
    assert {(item.outcome, item.path, item.status) for item in acted.items} == {("refused", None, None)}
    assert acted.items[0].detail == "execution e2 not found"
    left = {row.execution_id for row in (await stack.operations.executions.page(EVERYTHING, 10, None)).items}
    assert left == {"e1", "e2", "e3", "e4", "e5"}


async def test_counts_include_only_covered_executions(stack: Stack) -> None:
    def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        return dict(sum((Counter(one) for one in counts), Counter()))

    for paths, mine in ((("team/a",), {"completed": 2}), (("team/a", "other", "team/a/x"), {"completed": 4})):
        scoped = Scopes()(stack.operations, paths)
        assert summed(one.counts for one in (await scoped.selections.groups(EVERYTHING, "path")).items) == mine
        with pytest.raises(Forbidden):
            await scoped.selections.histogram(ExecutionFilter(path="team"), 10)
        with pytest.raises(Forbidden):
            await scoped.selections.groups(ExecutionFilter(path="team/ab"), "path")


async def test_bars_of_several_paths_are_one_histogram(clock: ManualClock) -> None:
    stack = Stack(clock)
    ids = [uuid7(clock.now_ms() - ago * 60_000, bytes([ago] * 10)) for ago in (1, 30, 60, 90)]
    await stack.add_executions(**dict(zip(ids, ("team/a", "other/x", "team/a/x", "team/ab"), strict=True)))
    scoped = Scopes()(stack.operations, ("team/a", "other"))
    found = await scoped.selections.histogram(ExecutionFilter(), 24)
    assert (found.counts, sum(found.bars["completed"])) == ({"completed": 3}, 3)
    everything = await stack.operations.selections.histogram(ExecutionFilter(), 24)
    assert (everything.counts, everything.first, everything.bar_s) == ({"completed": 4}, found.first, found.bar_s)


async def test_an_execution_of_another_path_is_compared_with_none(scoped: Operations) -> None:
    for one, other in (("e1", "e2"), ("e2", "e1"), ("e2", "e5")):
        with pytest.raises(NotFound, match=r"execution e[25] not found"):
            await scoped.views.diff(one, other, "all", 10, None)


@pytest.mark.parametrize("verb", ["get", "wait", "steps", "events"])
async def test_an_execution_under_a_path_is_read_as_without_paths(scoped: Operations, stack: Stack, verb: str) -> None:
    for one in ("e1", "e4"):
        assert await BY_ID[verb](scoped, one) == await BY_ID[verb](stack.operations, one)


async def test_lists_leave_out_what_is_elsewhere(scoped: Operations) -> None:
    assert await listed(lambda cursor: scoped.executions.page(EVERYTHING, 1, cursor), "execution_id") == ["e4", "e1"]
    assert await listed(lambda cursor: scoped.executions.page(EVERYTHING, 10, cursor), "execution_id") == ["e4", "e1"]
    assert await listed(lambda cursor: scoped.playbooks.page("", {}, 1, cursor), "path") == ["team/a/x"]


async def listed(read: Callable[[str | None], Awaitable[DocumentPage[Any]]], key: str) -> list[str]:
    """All pages, one after the other."""
    found: list[Any] = []
    cursor = None
    while True:
        page = await read(cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return [getattr(item, key) for item in found]


def elsewhere(count: int) -> dict[str, str]:
    return {f"f{number:03}": "other/x" for number in range(count)}


@pytest.mark.parametrize("others", [0, 1, 50])
async def test_a_page_ends_a_list_whatever_is_elsewhere(clock: ManualClock, others: int) -> None:
    stack = Stack(clock)
    await stack.add_executions(e000="team/a", **elsewhere(others))
    await stack.register(*(f"other/p{number:03}" for number in range(others)), "team/a/x")
    scoped = Scopes()(stack.operations, PATHS)
    page = await scoped.executions.page(EVERYTHING, 1, None)
    assert ([item.execution_id for item in page.items], page.next) == (["e000"], None)
    for prefix, expected in {"": ["team/a/x"], "other/": []}.items():
        playbooks = await scoped.playbooks.page(prefix, {}, 1, None)
        assert ([item.path for item in playbooks.items], playbooks.next) == (expected, None)


@pytest.mark.parametrize("chosen", [ExecutionFilter(error="leaked"), ExecutionFilter(labels={"team": "other"})])
async def test_a_filter_does_not_say_whether_something_elsewhere_matches(
    clock: ManualClock, chosen: ExecutionFilter
) -> None:
    stack = Stack(clock)
    await stack.add_executions(e000="team/a", **elsewhere(50))
    terms = {"word:leaked", "label:team=other"}
    stack.store.tables.terms |= {(term, execution_id) for term in terms for execution_id in elsewhere(50)}
    assert len((await stack.operations.executions.page(chosen, 100, None)).items) == 50
    scoped = Scopes()(stack.operations, PATHS)
    page = await scoped.executions.page(chosen, 1, None)
    assert (page.items, page.next) == ([], None)
    assert (await scoped.selections.groups(chosen, "path")).items == []


@pytest.mark.parametrize(
    "wanted",
    [
        Start(path="other/x"),
        Start(path="/other/x"),
        Start(path="team/ab"),
        Start(path="nothing/there"),
        Start(digest="d" * 64),
        Start(playbook=playbook("other/new")),
    ],
)
async def test_nothing_outside_the_paths_of_a_token_is_started(scoped: Operations, wanted: Start) -> None:
    with pytest.raises(Forbidden):
        await scoped.executions.start(wanted, "token:ci")


@pytest.mark.parametrize(
    ("wanted", "error"),
    [(Start(path="team/a/nothing"), NotFound), (Start(playbook="apiVersion: 7"), PlaybookRefused)],
)
async def test_a_refused_start_says_why(scoped: Operations, wanted: Start, error: type[NoetlError]) -> None:
    with pytest.raises(error):
        await scoped.executions.start(wanted, "token:ci")


# Playbooks


BUNDLE = zip_of({"packages/shop.py": b""})


async def stored_and_read(operations: Operations, path: str) -> object:
    with suppress(Forbidden):
        await operations.playbooks.put_bundle(path, BUNDLE, "token:ci")
    return await operations.playbooks.get_bundle(path, named_bundle(path, BUNDLE).digest)


BY_PATH: dict[str, Callable[[Operations, str], Awaitable[object]]] = {
    "register": lambda operations, path: operations.playbooks.register(playbook(path).encode(), "text", "token:ci"),
    "get": lambda operations, path: operations.playbooks.get(path, None),
    "versions": lambda operations, path: operations.playbooks.versions(path),
    "plan": lambda operations, path: operations.playbooks.plan(path, None),
    "graph": lambda operations, path: operations.playbooks.graph(path, None),
    "diff": lambda operations, path: operations.playbooks.diff(path, None, None),
    "diff_text": lambda operations, path: operations.playbooks.diff_text(path, None, b"text", "text"),
    "put_bundle": lambda operations, path: operations.playbooks.put_bundle(path, BUNDLE, "token:ci"),
    "get_bundle": lambda operations, path: stored_and_read(operations, path),
    "statistics": lambda operations, path: operations.playbooks.statistics(path, 0),
    "delete": lambda operations, path: operations.playbooks.delete(path, None, "token:ci"),
    "page": lambda operations, path: operations.executions.page(ExecutionFilter(path=path), 10, None),
}


def test_every_verb_of_a_playbook_is_tried_here(scoped: Operations) -> None:
    verbs = {name for name in vars(Playbooks) if not name.startswith("_")}
    assert verbs - {"check", "schema"} == BY_PATH.keys()


@pytest.mark.parametrize("path", ["other/x", "other/nothing", "team/ab", "/other/x"])
@pytest.mark.parametrize("verb", BY_PATH)
async def test_a_path_elsewhere_is_forbidden_whether_it_is_there_or_not(
    scoped: Operations, stack: Stack, verb: str, path: str
) -> None:
    with pytest.raises(Forbidden, match=r"its paths are team/a"):
        await BY_PATH[verb](scoped, path)
    assert len((await stack.operations.playbooks.page("", {}, 10, None)).items) == 3


@pytest.mark.parametrize("verb", BY_PATH)
async def test_a_path_below_is_served_as_without_paths(scoped: Operations, clock: ManualClock, verb: str) -> None:
    twin = await filled(clock)
    assert await BY_PATH[verb](scoped, "team/a/x") == await BY_PATH[verb](twin.operations, "team/a/x")


async def test_a_check_does_not_say_which_playbooks_elsewhere_are_registered(scoped: Operations) -> None:
    called = ("team/a/x", "team/a/nothing", "other/x", "other/nothing")
    calls = "".join(f"      - {{ kind: playbook, path: {path} }}\n" for path in called)
    text = playbook("team/a/caller").partition("    tool:")[0] + "    tool:\n" + calls
    checked = await scoped.playbooks.check(text.encode(), "text")
    assert [one.message for one in checked.diagnostics] == ["no playbook `team/a/nothing` is registered"]


async def test_a_check_says_nothing_of_schemas_elsewhere(scoped: Operations, stack: Stack) -> None:
    schema = (
        "apiVersion: noetl.io/v2\nkind: Schema\nmetadata: { name: s, path: other/s }\nspec: { properties: { a: {} } }\n"
    )
    await stack.operations.playbooks.register(schema.encode(), "schema", "token:ada")
    named = "".join(
        f"      - {{ name: t{number}, kind: noop, spec: {{ result: {{ schema: {{ path: {path} }} }} }} }}\n"
        for number, path in enumerate(("team/a/s", "other/s", "other/nothing"))
    )
    reads = "      - { name: reads, kind: noop, args: { x: '{{ t1.b }}' } }\n"
    text = playbook("team/a/typed").partition("    tool:")[0] + "    tool:\n" + named + reads
    checked = await scoped.playbooks.check(text.encode(), "text")
    assert [one.message for one in checked.diagnostics] == ["no schema `team/a/s` is registered"]


# The feed


TOLD = envelope(
    execution_id="e",
    position=1,
    name="step.done",
    source="worker",
    at_ms=0,
    step_run_id=None,
    report_id=None,
    data=b"{}",
)


class FourEvents:
    """A feed of an event of each of four playbooks."""

    async def execution(self, execution_id: str, after: int) -> AsyncIterator[list[FeedEvent]]:
        return await self.everything(None)

    async def everything(self, after: str | None) -> AsyncIterator[list[FeedEvent]]:
        async def heard() -> AsyncIterator[list[FeedEvent]]:
            paths = ("team/a/x", "other/x", "team/a", "other/y")
            yield [FeedEvent(str(number), TOLD, path) for number, path in enumerate(paths)]

        return heard()


async def test_the_whole_feed_leaves_out_what_is_elsewhere(stack: Stack) -> None:
    scoped = Scopes()(replace(stack.operations, feed=FourEvents()), PATHS)
    heard = await anext(await scoped.feed.everything(None))
    assert [(one.id, one.path) for one in heard if one.event] == [("0", "team/a/x"), ("2", "team/a")]
    assert (heard[-1].id, heard[-1].event, heard[-1].path) == ("3", None, "")  # only where to go on
    assert len(await anext(await scoped.feed.execution("e1", 0))) == 4


# Credentials


async def with_credentials(stack: Stack, *names: str) -> Operations:
    credentials = DirectCredentials(MemoryCredentials(stack.clock), KeyRing(read_key(new_key(), "a test")))
    for name in names:
        await credentials.put(name, "secret", "ann")
    return replace(stack.operations, credentials=credentials)


@pytest.mark.parametrize("where", ["file", "registered"])
@pytest.mark.parametrize(
    ("written", "default", "names"),
    [
        (None, None, ["plain", "team.a.db", "team.b.db"]),
        (None, "own", ["team.a.db", "team.b.db"]),
        ("{namespaces: [team/a, team/b], grants: []}", "own", ["team.a.db"]),
        ("{namespaces: [team/a], grants: [{paths: [team/a/x], credentials: [plain]}]}", "own", ["plain", "team.a.db"]),
        ("grants: [{paths: [other], credentials: [plain]}]", None, []),
        ('grants: [{paths: ["*"], credentials: ["team.*"]}]', None, ["team.a.db", "team.b.db"]),
    ],
)
async def test_an_author_sees_the_credentials_that_playbooks_of_the_paths_may_use(
    stack: Stack, tmp_path: Path, where: str, written: str | None, default: GrantsDefault | None, names: list[str]
) -> None:
    file = tmp_path / "grants.yaml" if where == "file" and written is not None else None
    if file is not None and written is not None:
        file.write_text(written)
    elif written is not None:
        await stack.operations.grants.put(1, written.encode(), "token:boss")
    operations = await with_credentials(stack, "plain", "team.a.db", "team.b.db")
    grants = grants_in_force(file, default, stack.grants)
    await grants.refresh()
    scoped = Scopes(grants)(operations, PATHS)
    assert [one.name for one in await scoped.credentials.list_all()] == names
    for name in ("plain", "team.a.db", "team.b.db"):
        if name in names:
            assert (await scoped.credentials.get(name)).name == name
        else:
            with pytest.raises(NotFound) as missing:
                await scoped.credentials.get(name)
            assert missing.value.message == f"credential {name!r} not found"
    assert len(await operations.credentials.list_all()) == 3


async def test_a_credential_that_is_near_is_not_suggested_to_a_token_with_paths(stack: Stack) -> None:
    operations = await with_credentials(stack, "team.a.db")
    scoped = Scopes(DefaultGrants(None))(operations, PATHS)
    with pytest.raises(NotFound) as missing:
        await scoped.credentials.get("team.a.dbx")
    assert "did you mean" not in str(missing.value)


# Grants


async def test_a_token_with_paths_sees_only_the_grants_of_its_playbooks(stack: Stack, scoped: Operations) -> None:
    written = b"grants: [{paths: [team/a/x], credentials: [mine]}, {paths: [other], credentials: [theirs]}]"
    await stack.operations.grants.put(1, written, "token:boss")
    assert (await scoped.grants.usable("team/a/x")).credentials == ["mine"]
    for elsewhere in ("other", "team/ab", "team", "/other", "team/a/../../other"):
        with pytest.raises((Forbidden, UsageError)):
            await scoped.grants.usable(elsewhere)
    for refused in (scoped.grants.get(), scoped.grants.get(1), scoped.grants.put(2, written, "token:ci")):
        with pytest.raises(Forbidden, match="a token with paths may not see or change the grants of all playbooks"):
            await refused


async def test_a_gateway_lists_credentials_by_what_is_registered_while_it_runs(
    stack: Stack, clock: ManualClock
) -> None:
    stack.operations = await with_credentials(stack, "team.a.db", "mailer")
    made = await stack.keeper.create_token(NewToken("ci", "author", PATHS), "ann")
    headers = {"Authorization": f"Bearer {made.secret}"}
    async with stack.gateway(Authentication(stack.tokens, stack.sessions, clock)) as client:

        async def names() -> list[str]:
            clock.advance(REFRESH_S)
            async with client.get("/api/v1/credentials", headers=headers) as answer:
                return [one["name"] for one in (await answer.json())["items"]]

        await until_it_is(["team.a.db"], names)
        await stack.operations.grants.put(1, b"grants: [{paths: [team/a], credentials: [mailer]}]", "token:boss")
        await until_it_is(["mailer"], names)
        assert await names() == ["mailer"]

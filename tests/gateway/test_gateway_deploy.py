"""Projects as they are deployed: directly, and through a gateway with the tokens of people."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
from gateway_stage import TOKEN, GatewayStage

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.verbs import gateway_operations
from noetl_stream.cli.base.session import CallerRights, Session
from noetl_stream.cli.project.deployment import Deployment, check_project, compared, require_author
from noetl_stream.cli.project.packages import (
    RequiringTask,
    bundle_in,
    bundle_of,
    locks_of,
    project_locks,
    stored_files,
    with_bundle,
)
from noetl_stream.cli.project.project_file import read_project, texts_of
from noetl_stream.errors import Forbidden, UsageError
from noetl_stream.model.rights import Role
from noetl_stream.operations.playbooks import entry_of
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.executions import Start
from noetl_stream.protocol.subjects import bundle_key
from noetl_stream.tools.python.environments.requirements import CONVERTER, Requirements
from wheels import wheel

HEAD = "apiVersion: noetl.io/v2\nkind: {kind}\nmetadata: {{ name: one, path: {path}{more} }}\n"


def document(kind: str, path: str, rest: str, more: str = "") -> str:
    return HEAD.format(kind=kind, path=path, more=more) + rest + "\n"


def playbook(path: str, says: str = "hi", version: str = "") -> str:
    step = f"workflow: [{{ step: start, tool: {{ kind: noop, args: {{ says: {says} }} }} }}]"
    return document("Playbook", path, step, f', version: "{version}"' if version else "")


def calling(path: str, called: str) -> str:
    step = f"workflow: [{{ step: start, tool: {{ kind: playbook, path: {called} }} }}]"
    return document("Playbook", path, step)


def schedule(path: str, started: str, every: str = "1h") -> str:
    return document("Schedule", path, f"spec: {{ playbook: {started}, every: {every} }}")


def trigger(path: str, started: str) -> str:
    return document("Trigger", path, f"spec: {{ playbook: {started}, on: {{ webhook: {{ verify: none }} }} }}")


SCHEMA = document("Schema", "team/total", "spec: { type: object, properties: { total: { type: integer } } }")
OF_SCHEMA = document(
    "Playbook",
    "team/sum",
    """workflow:
  - step: start
    tool:
      - { name: add, kind: noop, args: { total: 1 }, spec: { result: { schema: { path: team/total } } } }
      - { name: use, kind: noop, args: { says: "{{ add.total }}" } }""",
)
EVERYTHING = {
    "playbooks/report.yaml": calling("team/report", "team/part"),
    "playbooks/part.yaml": playbook("team/part"),
    "playbooks/part.test.yaml": "kind: PlaybookTest",
    "schedules/often.yaml": schedule("team/often", "team/report"),
    "triggers/hook.yaml": trigger("team/hook", "team/part"),
    "schemas/total.yaml": SCHEMA,
}


class Folder:
    """A project in a folder, and who deploys it."""

    def __init__(self, folder: Path, session: Session) -> None:
        self.folder, self.session = folder, session
        self.last: Deployment

    def has(self, files: dict[str, str], name: str = "team/flows") -> None:
        """From now on it has these files alone."""
        for file in [one for one in self.folder.rglob("*") if one.is_file()]:
            file.unlink()
        for path, text in {"noetl-stream.toml": f'name = "{name}"\n', **files}.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)

    async def compared(self, *, prune: bool = False) -> list[tuple[str, str]]:
        project, caller = read_project(self.folder), await self.session.caller()
        texts = texts_of(project)
        bundle = bundle_of(project, project_locks(project, texts, keep=True))
        folders = [self.folder / one for one in project.packages]
        documents = await check_project(self.session, with_bundle(texts, bundle), caller, folders)
        self.last = await compared(self.session, project.name, documents, caller, bundle, prune=prune)
        return [(item.change, item.path) for item in self.last.items]

    async def deploy(self, *, prune: bool = False) -> list[tuple[str, str]]:
        require_author(await self.session.caller())
        found = await self.compared(prune=prune)
        await self.last.carry_out(prune=prune)
        return found

    async def registered(self) -> dict[str, str]:
        """The version, or revision, of what is registered by path."""
        found = await self.session.operations.playbooks.page("", {}, 100, None)
        return {one.path: one.known_as for one in found.items}

    def notes(self) -> dict[str, str]:
        return {item.path: item.note for item in self.last.items if item.note}


async def nothing() -> None:
    pass


async def everything() -> CallerRights:
    return CallerRights("admin")


@pytest.fixture
async def connections(stage: GatewayStage) -> AsyncIterator[list[GatewayConnection]]:
    found: list[GatewayConnection] = []
    yield found
    for one in found:
        await one.close()


def session_of(stage: GatewayStage, secret: str, connections: list[GatewayConnection]) -> Session:
    connection = GatewayConnection(stage.url, secret, stage.clock)
    connections.append(connection)

    async def caller() -> CallerRights:
        return await connection.get(CallerRights, "me")

    return Session(gateway_operations(connection), "", nothing, "", keeps_ids=False, caller=caller)


@pytest.fixture
def direct(stage: GatewayStage, tmp_path: Path) -> Folder:
    return Folder(tmp_path, Session(stage.operations, "token:local", nothing, "", keeps_ids=True, caller=everything))


@pytest.fixture(params=["directly", "through a gateway"])
def project(
    request: pytest.FixtureRequest, stage: GatewayStage, direct: Folder, connections: list[GatewayConnection]
) -> Folder:
    if request.param == "directly":
        return direct
    return Folder(direct.folder, session_of(stage, TOKEN, connections))


async def folder_of_token(
    stage: GatewayStage, direct: Folder, connections: list[GatewayConnection], role: Role, paths: list[str]
) -> Folder:
    made = await stage.operations.access.create_token(NewToken("ci", role, paths, None), "token:local")
    assert made.secret is not None
    return Folder(direct.folder, session_of(stage, made.secret, connections))


async def test_a_deployment_registers_what_is_new_and_repeated_changes_nothing(
    project: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    project.has(EVERYTHING)
    all_of_it = ["team/total", "team/part", "team/report", "team/often", "team/hook"]
    assert await project.compared() == [("added", path) for path in all_of_it]
    assert await project.registered() == {}
    assert capsys.readouterr().err == "", "what calls a playbook of the project calls a registered one"
    assert await project.deploy() == [("added", path) for path in all_of_it]
    assert [(item.version, item.done) for item in project.last.items] == [("1", True)] * 5
    before = await project.registered()
    assert before == dict.fromkeys([*all_of_it, "team/flows/project"], "1")
    assert await project.deploy(prune=True) == [("unchanged", path) for path in all_of_it]
    assert not project.last.differs
    assert await project.registered() == before
    (found,) = (await project.session.operations.schedules.page("", 10, None)).items
    assert (found.path, found.playbook) == ("team/often", "team/report")


async def test_a_changed_playbook_is_registered_with_its_new_version(project: Folder) -> None:
    project.has(
        {
            "playbooks/part.yaml": playbook("team/part", version="1.0"),
            "schedules/a.yaml": schedule("team/a", "team/part"),
        }
    )
    await project.deploy()
    project.has(
        {
            "playbooks/part.yaml": playbook("team/part", "ho", "1.1"),
            "schedules/a.yaml": schedule("team/a", "team/part", "2h"),
        }
    )
    assert await project.deploy() == [("changed", "team/part"), ("changed", "team/a")]
    assert [(item.registered, item.version) for item in project.last.items] == [("1.0", "1.1"), ("1", "2")]
    assert (await project.session.operations.schedules.get("team/a")).timetable.every_s == 7200


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"playbooks/b.yaml": playbook("team/b") + "stray: 1\n"}, "b.yaml:5:1: error[unknown_key]"),
        ({"playbooks/b.yaml": playbook("team/a")}, "a.yaml has the path team/a, too"),
        ({"playbooks/b.yaml": playbook("team/was", "ho", "1.0")}, "team/was@1.0 is registered with a different text"),
        ({"playbooks/b.yaml": playbook("team/moved", "hi", "1.0")}, "team/moved@1.0 is registered, and 1.1 after it"),
        ({"playbooks/b.yaml": playbook("team/flows/project")}, "team/flows/project is the record of the project"),
        ({"playbooks/b.yaml": playbook("team/total")}, "team/total is the path of a schema"),
        ({"schedules/b.yaml": schedule("team/b", "team/nowhere")}, "no playbook `team/nowhere` is registered"),
        ({"schedules/b.yaml": schedule("team/b", "team/a, version: '7'")}, "no playbook `team/a@7` is registered"),
        ({"triggers/b.yaml": trigger("team/b", "team/nowhere")}, "no playbook `team/nowhere` is registered"),
        ({"playbooks/b.yaml": OF_SCHEMA, "schemas/t.yaml": SCHEMA + "  stray: 1\n"}, "t.yaml:"),
    ],
)
async def test_nothing_is_registered_if_any_document_is_wrong(
    direct: Folder, wrong: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    by_hand = [
        playbook("team/was", "hi", "1.0"),
        playbook("team/moved", "hi", "1.0"),
        playbook("team/moved", "ho", "1.1"),
    ]
    for text in (*by_hand, SCHEMA):
        await direct.session.operations.playbooks.register(text.encode(), "by hand", "someone")
    before = await direct.registered()
    direct.has({"playbooks/a.yaml": playbook("team/a"), **wrong})
    with pytest.raises(click.exceptions.Exit) as ended:
        await direct.deploy()
    said = capsys.readouterr().err
    assert (ended.value.exit_code, message in said, "nothing was registered" in said) == (2, True, True), said
    assert await direct.registered() == before


async def test_a_schema_of_the_project_is_checked_with_the_playbooks_that_name_it(
    project: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    project.has({"playbooks/sum.yaml": OF_SCHEMA, "schemas/total.yaml": SCHEMA})
    await project.compared()
    assert "unregistered_schema" not in capsys.readouterr().err
    wrong = OF_SCHEMA.replace("add.total }", "add.totel }")
    project.has({"playbooks/sum.yaml": wrong, "schemas/total.yaml": SCHEMA})
    await project.compared()
    assert "warning[unknown_result_key]" in capsys.readouterr().err


async def test_prune_removes_only_registrations_of_the_project(project: Folder) -> None:
    playbooks = project.session.operations.playbooks
    await playbooks.register(playbook("team/by-hand").encode(), "by hand", project.session.by)
    kept = {"playbooks/kept.yaml": playbook("team/kept")}
    project.has({**EVERYTHING, **kept, "playbooks/taken.yaml": playbook("team/taken")})
    await project.deploy()
    await playbooks.register(playbook("team/taken", "mine").encode(), "by hand", project.session.by)
    project.has(kept)
    gone = ["team/hook", "team/often", "team/part", "team/report"]
    assert [change for change, _ in await project.deploy()] == ["unchanged", *["left"] * 6]
    assert len(await project.registered()) == 9
    found = await project.deploy(prune=True)
    assert [path for change, path in found if change == "pruned"] == [*gone, "team/total"]
    assert list(project.notes()) == ["team/taken"] and "registered another text" in project.notes()["team/taken"]
    assert sorted(await project.registered()) == ["team/by-hand", "team/flows/project", "team/kept", "team/taken"]
    assert (await project.session.operations.schedules.page("", 10, None)).items == []
    assert await project.deploy(prune=True) == [("unchanged", "team/kept")]


async def test_of_two_deployments_at_the_same_time_one_is_asked_to_repeat(project: Folder) -> None:
    project.has({"playbooks/a.yaml": playbook("team/a")})
    await project.compared()
    slower = project.last
    project.has({"playbooks/b.yaml": playbook("team/b")})
    await project.deploy()
    with pytest.raises(UsageError, match="another deployment of team/flows is under way"):
        await slower.carry_out(prune=False)
    assert sorted(await project.registered()) == ["team/b", "team/flows/project"]
    project.has({"playbooks/a.yaml": playbook("team/a")})
    assert await project.deploy(prune=True) == [("added", "team/a"), ("pruned", "team/b")]


async def test_playbooks_of_another_project_are_left_to_it(direct: Folder) -> None:
    moved, first = {"playbooks/moved.yaml": playbook("team/moved")}, {"playbooks/a.yaml": playbook("team/a")}
    direct.has({**first, **moved}, "team/one")
    await direct.deploy()
    direct.has(moved, "team/two")
    assert await direct.deploy() == [("adopted", "team/moved")]
    assert direct.notes() == {"team/moved": "the project team/one has it, too"}
    direct.has(first, "team/one")
    assert await direct.deploy(prune=True) == [("unchanged", "team/a"), ("left", "team/moved")]
    assert direct.notes() == {"team/moved": "the project team/two has it, too"}
    assert await direct.deploy(prune=True) == [("unchanged", "team/a")]
    assert "team/moved" in await direct.registered()


async def test_a_playbook_that_the_project_calls_is_not_pruned(
    direct: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    direct.has(EVERYTHING)
    await direct.deploy()
    direct.has({"playbooks/report.yaml": EVERYTHING["playbooks/report.yaml"]})
    with pytest.raises(click.exceptions.Exit):
        await direct.deploy(prune=True)
    assert "names team/part, which --prune would remove" in capsys.readouterr().err
    assert "team/part" in await direct.registered()


async def test_a_deployment_that_broke_off_says_what_was_done_and_the_next_finishes_it(
    stage: GatewayStage, direct: Folder
) -> None:
    direct.has(EVERYTHING)
    real, calls = stage.operations.playbooks.register, []

    async def breaking(source: bytes, name: str, by: str) -> Any:
        calls.append(name)
        if len(calls) > 3:
            raise UsageError("the line broke")
        return await real(source, name, by)

    stage.replace("playbooks", register=breaking)
    direct.session = Session(stage.operations, "token:local", nothing, "", keeps_ids=True, caller=everything)
    with pytest.raises(UsageError, match=r"report\.yaml: the line broke"):
        await direct.deploy()
    assert [item.done for item in direct.last.items] == [True, True, False, False, False]
    stage.replace("playbooks", register=real)
    direct.session = Session(stage.operations, "token:local", nothing, "", keeps_ids=True, caller=everything)
    changes = [change for change, _ in await direct.deploy()]
    assert changes == ["unchanged", "unchanged", "added", "added", "added"]
    direct.has({"playbooks/kept.yaml": playbook("team/kept")})
    assert len([1 for change, _ in await direct.deploy(prune=True) if change == "pruned"]) == 5
    assert sorted(await direct.registered()) == ["team/flows/project", "team/kept"]


async def test_a_schedule_that_is_in_the_catalog_and_was_never_begun_is_begun(
    stage: GatewayStage, direct: Folder
) -> None:
    """As if the process had died between the two halves of a registration."""
    direct.has({"playbooks/a.yaml": playbook("team/a"), "schedules/b.yaml": schedule("team/b", "team/a")})
    text = schedule("team/b", "team/a")
    document = check_document(text, {}).document
    assert document is not None
    await stage.catalog.register(entry_of(text, document, registered_ms=1, registered_by="someone"), text)
    assert await direct.deploy() == [("added", "team/a"), ("changed", "team/b")]
    assert (await direct.session.operations.schedules.get("team/b")).digest == document.digest


async def test_a_token_deploys_and_prunes_only_at_its_paths(
    stage: GatewayStage, direct: Folder, connections: list[GatewayConnection], capsys: pytest.CaptureFixture[str]
) -> None:
    mine, others = {"playbooks/a.yaml": playbook("team/a")}, {"playbooks/b.yaml": playbook("other/b")}
    direct.has({**mine, **others})
    await direct.deploy()
    ci = await folder_of_token(stage, direct, connections, "author", ["team"])
    with pytest.raises(click.exceptions.Exit):
        await ci.deploy()
    assert "b.yaml: error: this token does not cover other/b\n  hint: its paths are team" in capsys.readouterr().err
    ci.has(mine)
    assert await ci.deploy(prune=True) == [("unchanged", "team/a"), ("left", "other/b")]
    assert ci.notes() == {"other/b": "this token does not cover it"}
    assert "other/b" in await direct.registered()
    ci.has({**mine, "schedules/s.yaml": schedule("team/s", "other/b")})
    with pytest.raises(click.exceptions.Exit):
        await ci.deploy()
    assert "s.yaml: error: this token does not cover other/b" in capsys.readouterr().err
    ci.has(mine, "flows")
    with pytest.raises(Forbidden, match="does not cover flows/project"):
        await ci.deploy()


async def test_a_caller_without_the_right_to_register_may_see_the_difference(
    stage: GatewayStage, direct: Folder, connections: list[GatewayConnection]
) -> None:
    direct.has(EVERYTHING)
    viewer = await folder_of_token(stage, direct, connections, "viewer", [])
    with pytest.raises(Forbidden, match="the role viewer may not deploy"):
        await viewer.deploy()
    assert [change for change, _ in await viewer.compared()] == ["added"] * 5


async def test_a_document_in_the_place_of_the_record_is_not_overwritten(direct: Folder) -> None:
    await direct.session.operations.playbooks.register(playbook("team/flows/project").encode(), "by hand", "someone")
    direct.has(EVERYTHING)
    with pytest.raises(UsageError, match="team/flows/project is not the record of a project"):
        await direct.deploy()


# Packages


def calls(function: str, path: str = "team/double", more: str = "") -> str:
    step = f'workflow: [{{ step: start, tool: {{ kind: python, function: "{function}" }} }}]'
    return document("Playbook", path, step, more)


def packaged(source: str = "def double() -> int: ...\n", **more: str) -> dict[str, str]:
    return {
        "noetl-stream.toml": 'name = "team/flows"\npackages = ["src"]\n',
        "playbooks/double.yaml": calls("etl.steps:double"),
        "playbooks/part.yaml": playbook("team/part"),
        "src/etl/steps.py": source,
        "src/.hidden": "",
        "src/etl/__pycache__/steps.pyc": "",
        **more,
    }


async def registered_text(project: Folder, path: str) -> str:
    return (await project.session.operations.playbooks.get(path, None)).source


async def test_packages_are_stored_and_a_change_of_code_is_a_new_version_of_what_calls_it(project: Folder) -> None:
    project.has(packaged())
    everything = ["team/flows", "team/double", "team/part"]
    assert await project.deploy() == [("added", path) for path in everything]
    assert project.last.items[0].note == "1 file, 165 bytes"
    assert await project.deploy() == [("unchanged", path) for path in everything]
    first = bundle_in(await registered_text(project, "team/double"))
    project.has(packaged("def double() -> int: return 2\n"))
    changes = [("changed", "team/flows"), ("changed", "team/double"), ("unchanged", "team/part")]
    assert await project.deploy() == changes
    second = bundle_in(await registered_text(project, "team/double"))
    assert first is not None and second is not None and first != second
    assert bundle_in(await registered_text(project, "team/part")) is None
    project.has(packaged())
    assert await project.deploy() == changes, "the way back is a new version, too"
    assert bundle_in(await registered_text(project, "team/double")) == first


async def test_packages_that_were_lost_are_stored_again(stage: GatewayStage, direct: Folder) -> None:
    direct.has(packaged())
    await direct.deploy()
    name = bundle_in(await registered_text(direct, "team/double"))
    assert name is not None
    await stage.blobs.delete(bundle_key(name))
    assert (await direct.deploy())[:2] == [("changed", "team/flows"), ("unchanged", "team/double")]
    assert (await direct.compared())[0] == ("unchanged", "team/flows")


async def test_packages_that_are_damaged_are_stored_again(stage: GatewayStage, project: Folder) -> None:
    project.has(packaged())
    await project.deploy()
    name = bundle_in(await registered_text(project, "team/double"))
    assert name is not None
    await stage.blobs.delete(bundle_key(name))
    await stage.broker.blobs.put(bundle_key(name), b"of somebody else")
    assert (await project.deploy())[:2] == [("changed", "team/flows"), ("unchanged", "team/double")]
    assert (await project.compared())[0] == ("unchanged", "team/flows")


async def test_a_version_stands_for_its_code(direct: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    versioned = {"playbooks/double.yaml": calls("etl.steps:double", more=', version: "1"')}
    direct.has(packaged(**versioned))
    await direct.deploy()
    direct.has(packaged("def double() -> int: return 2\n", **versioned))
    with pytest.raises(click.exceptions.Exit):
        await direct.deploy()
    assert "team/double@1 is registered with a different text" in capsys.readouterr().err


async def test_a_function_that_is_nowhere_and_a_text_that_cannot_name_packages_are_refused(direct: Folder) -> None:
    flow = "{ apiVersion: noetl.io/v2, kind: Playbook, metadata: { name: a, path: team/a }, workflow: "
    flow += '[{ step: start, tool: { kind: python, function: "etl.steps:double" } }] }'
    for text, why in (
        (calls("etl.stepz:double"), "etl.stepz:double: the packages of the project have no module etl.stepz"),
        (flow, "cannot name its packages"),
        (calls("etl.steps:double") + f"bundle: team/flows@{'0' * 64}\n", "cannot name its packages"),
    ):
        direct.has(packaged(**{"playbooks/double.yaml": text}))
        with pytest.raises(UsageError, match=why):
            await direct.deploy()
    direct.has(packaged(**{"playbooks/double.yaml": calls("math:sqrt")}))
    await direct.deploy()
    (direct.folder / "src" / "link.py").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match=r"link\.py: a link, or no file"):
        await direct.deploy()


async def test_arguments_are_compared_with_the_signatures_in_the_packages(
    project: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    project.has(packaged("def double(n: int) -> int: ...\n"))
    await project.deploy()
    assert capsys.readouterr().err.count("etl.steps:double(n: int) needs `n`") == 1
    project.has(packaged("def triple(n: int) -> int: ...\n"))
    await project.deploy()
    assert "`etl.steps` has no function `double`" in capsys.readouterr().err


async def test_a_token_neither_stores_nor_uses_packages_of_another_project(
    stage: GatewayStage, direct: Folder, connections: list[GatewayConnection]
) -> None:
    direct.has(packaged())
    await direct.deploy()
    text = (await registered_text(direct, "team/double")).replace("path: team/double", "path: other/double")
    other = await folder_of_token(stage, direct, connections, "author", ["other"])
    playbooks = other.session.operations.playbooks
    bundle = bundle_of(read_project(direct.folder))
    assert bundle is not None
    with pytest.raises(Forbidden, match="this token does not cover team/flows"):
        await playbooks.put_bundle("team/flows", bundle.data, "")
    with pytest.raises(Forbidden, match="this token does not cover team/flows"):
        await playbooks.register(text.encode(), "double", "")
    assert (await playbooks.put_bundle("other", bundle.data, "")).name == f"other@{bundle.name.digest}"


async def test_an_invalid_bundle_is_not_stored_and_an_unstored_one_is_not_registered(project: Folder) -> None:
    playbooks = project.session.operations.playbooks
    with pytest.raises(UsageError, match="not a bundle"):
        await playbooks.put_bundle("team/flows", b"PK", "")
    text = calls("etl.steps:double") + f"bundle: team/flows@{'0' * 64}\n"
    with pytest.raises(UsageError, match=f"the bundle team/flows@{'0' * 64} is not stored"):
        await playbooks.register(text.encode(), "double", "")
    with pytest.raises(UsageError, match="names no bundle"):
        await playbooks.register(text.replace("@00", "@0g").encode(), "double", "")


def requiring(*requires: str, path: str = "team/needs", code: str = "return 1") -> str:
    spec = f"executor: {{ spec: {{ python: {{ requires: {[*requires]} }} }} }}\n"
    step = f"workflow:\n  - step: start\n    tool:\n      kind: python\n      code: |\n        {code}"
    return document("Playbook", path, spec + step)


@pytest.fixture
def index(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of wheels in which versions are looked for."""
    folder = tmp_path_factory.mktemp("index")
    wheel(folder, "tiny", "1.0", {"tiny.py": ""})
    monkeypatch.setenv("NOETL_PYTHON_INDEX", str(folder))
    return folder


async def stored_locks(project: Folder, path: str) -> dict[str, str]:
    name = bundle_in(await registered_text(project, path))
    assert name is not None
    return {file: data.decode() for file, data in (await stored_files(project.session, name)).items()}


async def test_requirements_of_tasks_are_locked_once_and_the_lock_is_part_of_the_bundle(
    project: Folder, index: Path
) -> None:
    project.has({"playbooks/needs.yaml": requiring("tiny>=1"), "playbooks/part.yaml": playbook("team/part")})
    assert await project.deploy() == [("added", path) for path in ("team/flows", "team/needs", "team/part")]
    ((file, text),) = (await stored_locks(project, "team/needs")).items()
    assert text.startswith("# tiny>=1\ntiny==1.0 \\\n    --hash=sha256:") and file.startswith("locks/")
    assert (project.folder / file).read_text() == text, "it is kept with the project"
    wheel(index, "tiny", "1.1", {"tiny.py": ""})
    assert {change for change, _ in await project.deploy()} == {"unchanged"}
    (project.folder / file).unlink()
    changes = [("changed", "team/flows"), ("changed", "team/needs"), ("unchanged", "team/part")]
    assert await project.deploy() == changes
    assert (await stored_locks(project, "team/needs"))[file].startswith("# tiny>=1\ntiny==1.1 ")


@pytest.mark.usefixtures("index")
async def test_a_lock_that_cannot_be_written_leaves_no_part_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    def full(part: Path, target: Path) -> None:
        written.append(part.read_bytes())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    wanted = {Requirements(("tiny",)): RequiringTask("needs.yaml", "", 4)}
    with pytest.raises(UsageError, match=r"/locks/\w+\.txt: cannot be written: No space left on device"):
        locks_of(wanted, tmp_path, keep=True)
    assert b"tiny==1.0" in written[0] and list((tmp_path / "locks").iterdir()) == []
    (tmp_path / "locks").rmdir()
    (tmp_path / "locks").touch()
    with pytest.raises(UsageError, match=r"/locks/\w+\.txt: cannot be written: File exists"):
        locks_of(wanted, tmp_path, keep=True)


async def test_a_requirement_that_cannot_be_locked_is_reported_with_its_line(direct: Folder, index: Path) -> None:
    (index / "built-1.0.tar.gz").write_bytes(b"")
    for requires, why in (
        (("tiny>=2",), r"needs\.yaml:4: tiny>=2: cannot be locked: .*only tiny==1\.0 is available"),
        (("tiny", "absent"), r"needs\.yaml:4: absent: cannot be locked"),
        (("built",), r"needs\.yaml:4: built: cannot be locked: .*NOETL_PYTHON_SDISTS=on"),
    ):
        direct.has({"playbooks/needs.yaml": requiring(*requires)})
        with pytest.raises(UsageError, match=why):
            await direct.deploy()
    assert await direct.registered() == {}


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("python", "what", "hint"),
    [("==3.28.*", "msgspec for Python 3.28", "released"), ("", "msgspec", "the operator adds it")],
)
def test_a_python_without_what_converts_inputs_is_said_in_words_of_the_playbook(
    python: str, what: str, hint: str
) -> None:
    wanted = {Requirements((CONVERTER, "tiny"), python): RequiringTask("needs.yaml", "", 4)}
    with pytest.raises(UsageError) as refused:
        locks_of(wanted, None, keep=False)
    assert str(refused.value).startswith(f"needs.yaml:4: the index has no {what}, which converts the inputs")
    assert hint in str(refused.value.hint)


async def test_an_unreachable_index_is_reported(direct: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_PYTHON_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    direct.has({"playbooks/needs.yaml": requiring("tiny")})
    with pytest.raises(UsageError, match=r"needs\.yaml:4: tiny: the index of packages does not answer"):
        await direct.deploy()


async def test_nothing_is_registered_whose_requirements_are_not_locked(project: Folder, index: Path) -> None:
    playbooks = project.session.operations.playbooks
    source = requiring("tiny")
    with pytest.raises(UsageError, match=r"n\.yaml:8: the task requires tiny, and nothing locks that"):
        await playbooks.register(source.encode(), "n.yaml", "")
    project.has(packaged(**{"playbooks/part.yaml": source}))
    await project.deploy()
    name = bundle_in(await registered_text(project, "team/needs"))
    other = requiring("tiny", "tiny>=1") + f"bundle: {name}\n"
    with pytest.raises(UsageError, match="the task requires tiny, tiny>=1, and nothing locks that"):
        await playbooks.register(other.encode(), "n.yaml", "")


async def test_no_text_is_started_whose_requirements_are_not_locked(project: Folder, index: Path) -> None:
    source, executions = requiring("tiny"), project.session.operations.executions
    with pytest.raises(UsageError, match="playbook:8: the task requires tiny, and nothing locks that"):
        await executions.start(Start(playbook=source), "")
    project.has({"playbooks/needs.yaml": source})
    await project.deploy()
    locked = await registered_text(project, "team/needs")
    assert (await executions.start(Start(playbook=locked), "")).path == "team/needs"

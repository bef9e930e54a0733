"""``playbook register | list | versions | show | diff`` and ``run PATH[@VERSION]`` on a stack that is up."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli_program
from cli_program import HEAD, one_clear_line, only_json
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

Write = Callable[..., Path]


def text_of(path: str, version: str | None = None, *, says: str = "hi", metadata: str = "") -> str:
    """A playbook whose result is what it says."""
    given = f', version: "{version}"' if version else ""
    return f"""{HEAD}metadata: {{name: one, path: {path}{given}{metadata}}}
workload: {{who: world}}
workflow:
  - step: say
    tool: {{kind: noop, args: {{says: "{says}", who: "{{{{ workload.who }}}}"}}}}
"""


@pytest.fixture
def catalog(shared_home: Path, playbook: Write) -> Callable[..., Any]:
    """Registers a text; what the program says of it."""

    def register(text: str) -> Any:
        found = noetl("playbook", "register", playbook(text), "--home", shared_home, "-o", "json")
        assert found.returncode == 0, found.stderr
        return only_json(found)[0]

    return register


def test_registering_prints_path_version_and_digest(shared_home: Path, playbook: Write) -> None:
    text = text_of("reg/one", "1.0", metadata=", description: Says hi, labels: {prod: true, tier: 1}, tags: [a]")
    file = playbook(text)
    found = noetl("playbook", "register", file, "--home", shared_home)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert (found.returncode, found.stderr) == (0, "")
    head, row = found.stdout.splitlines()
    assert head.split() == ["path", "version", "revision", "digest", "kind", "registered", "labels"]
    assert row.split()[:4] == ["reg/one", "1.0", "1", digest[:12]]
    assert row.split()[-2:] == ["prod=true", "tier=1"]
    (again,) = only_json(noetl("playbook", "register", file, "--home", shared_home, "-o", "json"))
    assert again.pop("registered") in found.stdout
    assert again.pop("registered_by")
    assert again == {
        "path": "reg/one", "version": "1.0", "revision": 1, "digest": digest, "name": "one", "known_as": "1.0",
        "description": "Says hi", "labels": {"prod": True, "tier": 1}, "tags": ["a"], "created": False,
        "kind": "Playbook",
    }  # fmt: skip


def test_a_called_playbook_that_is_not_registered_is_named(shared_home: Path, playbook: Write) -> None:
    calls = text_of("reg/calls").replace("noop, args: {says", "playbook, path: reg/called, args: {says")
    calls, called = playbook(calls, "calls.yaml"), playbook(text_of("reg/called"), "called.yaml")
    found = noetl("playbook", "register", calls, "--home", shared_home)
    assert (found.returncode, "no playbook `reg/called` is registered" in found.stderr) == (0, True)
    both = noetl("playbook", "register", calls, called, "--home", shared_home)
    assert (both.returncode, both.stderr) == (0, "")


def test_with_one_wrong_file_nothing_is_registered(shared_home: Path, playbook: Write) -> None:
    good, wrong = (
        playbook(text_of("reg/good"), "good.yaml"),
        playbook(text_of("reg/wrong") + "stray: 1\n", "wrong.yaml"),
    )
    found = noetl("playbook", "register", good, wrong, "--home", shared_home)
    assert (found.returncode, found.stdout) == (2, "")
    assert f"{wrong}:" in found.stderr
    assert only_json(noetl("playbook", "list", "--prefix", "reg/good", "--home", shared_home, "-o", "json")) == []


def test_another_text_under_a_version_is_refused_after_those_before_it(shared_home: Path, playbook: Write) -> None:
    first = playbook(text_of("reg/twice", "1.0"), "first.yaml")
    second = playbook(text_of("reg/twice", "1.0", says="ho"), "second.yaml")
    found = noetl("playbook", "register", first, second, "--home", shared_home)
    assert found.returncode == 2
    assert found.stdout.splitlines()[1].startswith("reg/twice")
    assert "reg/twice@1.0 is registered with a different text" in found.stderr
    assert "another metadata.version" in found.stderr
    assert "a different text" in one_clear_line(noetl("playbook", "register", second, "--home", shared_home))


@pytest.mark.parametrize(
    ("path", "version", "message"),
    [
        ("a b", None, "'a b' is not a valid path"),
        ("a@b", None, "is not a valid path"),
    ]
    + [("a", version, "is not a valid version") for version in ("#1", "1 2", "1@2")],
)
def test_an_unaddressable_version_is_refused(
    fresh_home: Path, playbook: Write, path: str, version: str | None, message: str
) -> None:
    found = noetl("playbook", "register", playbook(text_of(f'"{path}"', version)), "--home", fresh_home)
    assert found.returncode == 2
    assert message in one_clear_line(found)
    assert not fresh_home.exists()


def test_list_shows_the_latest_of_each_path(shared_home: Path, catalog: Callable[..., Any]) -> None:
    catalog(text_of("list/b", "1.0"))
    catalog(text_of("list/b", "2.0", metadata=", labels: {tier: 1}"))
    catalog(text_of("list/a"))
    target = ["--prefix", "list/", "--home", shared_home]
    rows = only_json(noetl("playbook", "list", *target, "-o", "json"))
    assert [(row["path"], row["version"], row["revision"]) for row in rows] == [
        ("list/a", None, 1),
        ("list/b", "2.0", 2),
    ]
    assert noetl("playbook", "list", *target, "-o", "name").stdout == "list/a\nlist/b\n"
    assert noetl("playbook", "list", *target, "--label", "tier=1", "-o", "name").stdout == "list/b\n"
    assert noetl("playbook", "list", *target, "--words", "TIER=1 list", "-o", "name").stdout == "list/b\n"
    page = noetl("playbook", "list", *target, "--limit", "1", "-o", "name")
    assert (page.stdout, page.stderr) == ("list/a\n", "next page: --after list/a\n")
    assert noetl("playbook", "list", *target, "--after", "list/a", "-o", "name").stdout == "list/b\n"
    table = noetl("playbook", "list", *target).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["path", "list/a", "list/b"]


def test_versions_are_shown_newest_first(shared_home: Path, catalog: Callable[..., Any]) -> None:
    for version in ("1.0", None, "2.0"):
        catalog(text_of("versions/one", version))
    rows = only_json(noetl("playbook", "versions", "/versions/one", "--home", shared_home, "-o", "json"))
    assert [(row["version"], row["revision"]) for row in rows] == [("2.0", 3), (None, 2), ("1.0", 1)]
    table = noetl("playbook", "versions", "versions/one", "--home", shared_home).stdout.splitlines()
    assert len(table) == 4


def test_show_gives_the_text_byte_for_byte(shared_home: Path, playbook: Write, catalog: Callable[..., Any]) -> None:
    old, new = text_of("show/one", "1.0") + "# ünïcode", text_of("show/one")
    catalog(old)
    catalog(new)
    for argument, text in (("show/one", new), ("show/one@1.0", old), ("show/one@1", old), ("show/one@#2", new)):
        assert noetl("playbook", "show", argument, "--home", shared_home).stdout == text
    found = only_json(noetl("playbook", "show", "show/one@1.0", "--home", shared_home, "-o", "json"))
    assert (found["source"], found["version"], found["revision"]) == (old, "1.0", 1)


def test_show_of_a_file_needs_no_catalog(fresh_home: Path, playbook: Write) -> None:
    file = playbook(text_of("show/file"))
    assert noetl("playbook", "show", file, "--home", fresh_home).stdout == file.read_text()
    found = only_json(noetl("playbook", "show", file, "--home", fresh_home, "-o", "json"))
    assert found == {
        "file": str(file),
        "digest": hashlib.sha256(file.read_bytes()).hexdigest(),
        "source": file.read_text(),
    }
    compiled = only_json(noetl("playbook", "show", file, "--compiled", "--home", fresh_home, "-o", "json"))
    assert (compiled["digest"], compiled["entry"]) == (found["digest"], "say")
    assert [task["kind"] for step in compiled["steps"] for task in step["tasks"]] == ["noop"]
    assert not fresh_home.exists()


def test_show_compiled_gives_the_plan(shared_home: Path, catalog: Callable[..., Any]) -> None:
    catalog(text_of("show/plan", "1.0"))
    found = noetl("playbook", "show", "show/plan", "--compiled", "--home", shared_home)
    lines = found.stdout.splitlines()
    assert lines[0].startswith("playbook show/plan")
    assert lines[1].startswith("step say")
    assert lines[2].startswith("  task say_task")


def test_explain_leads_each_name_back_to_its_line(playbook: Write) -> None:
    file = playbook(text_of("show/explained"))
    head, *rows = noetl("playbook", "explain", file).stdout.splitlines()
    assert head.split() == ["line", "what", "name", "about", "origin"]
    assert any(row.split()[1:4] == ["task", "say.say_task", "noop"] for row in rows)
    found = only_json(noetl("playbook", "explain", file, "-o", "json"))
    assert {one["name"] for one in found["names"]} >= {"say", "say.say_task"}
    assert found["command_subjects"] == {"say": "noetl.commands.default.5.EXECUTION.COMMAND"}


def test_show_compiled_of_a_broken_file_gives_its_diagnostics(playbook: Write) -> None:
    file = playbook(text_of("show/broken") + "stray: 1\n")
    assert noetl("playbook", "show", file).stdout == file.read_text()
    found = noetl("playbook", "show", file, "--compiled")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"{file}:8:1: error[")


def test_diff_says_what_changed_and_whether(shared_home: Path, playbook: Write, catalog: Callable[..., Any]) -> None:
    catalog(text_of("diff/one", "1.0"))
    catalog(text_of("diff/one", "2.0", says="ho"))
    file = playbook(text_of("diff/one", "2.0", says="ho"))
    target = ["--home", shared_home]
    found = noetl("playbook", "diff", "diff/one@1.0", "diff/one", *target)
    assert found.returncode == 1
    lines = found.stdout.splitlines()
    assert lines[:2] == ["--- diff/one@1.0", "+++ diff/one@2.0"]
    assert '-    tool: {kind: noop, args: {says: "hi", who: "{{ workload.who }}"}}' in lines
    same = noetl("playbook", "diff", "diff/one@2.0", file, *target)
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")
    found = noetl("playbook", "diff", "diff/one@1.0", file, *target, "-o", "json")
    diff = only_json(found)
    assert (found.returncode, diff["same"]) == (1, False)
    assert diff["steps"] == {"added": [], "removed": [], "changed": ["say"]}
    assert diff["arcs"] == []
    assert (diff["before"]["version"], diff["after"]["file"]) == ("1.0", str(file))
    assert diff["before"]["digest"] != diff["after"]["digest"]


def test_run_takes_the_latest_or_the_given_version(shared_home: Path, catalog: Callable[..., Any]) -> None:
    old = catalog(text_of("run/one", "1.0"))
    new = catalog(text_of("run/one", "2.0", says="ho"))
    for argument, says, entry in (("run/one", "ho", new), ("run/one@1.0", "hi", old)):
        found = noetl("run", argument, "--set", "who=ada", "--home", shared_home, "-o", "json")
        assert found.returncode == 0, found.stderr
        ended = only_json(found)
        assert (ended["path"], ended["result"]) == ("run/one", {"says": says, "who": "ada"})
        begun = only_json(noetl("execution", "events", ended["execution_id"], "--home", shared_home, "-o", "json"))[0]
        assert begun["data"]["digest"] == entry["digest"]


def test_statistics_are_a_table_or_a_document(shared_home: Path, catalog: Callable[..., Any]) -> None:
    catalog(text_of("counted/one", "1.0"))
    target = ["--home", shared_home]
    assert "0 executions since" in noetl("playbook", "statistics", "counted/one", *target).stdout
    for _ in range(2):
        assert noetl("run", "counted/one", "--set", "who=ada", *target).returncode == 0
    shown = noetl("playbook", "statistics", "counted/one", "--since", "1h", *target).stdout
    assert "2 executions since" in shown and "2 completed" in shown and "failed: 0.0%" in shown
    assert re.search(r"^say +2 +0 +0\.0% ", shown, re.MULTILINE)
    found = only_json(noetl("playbook", "statistics", "counted/one", *target, "-o", "json"))
    assert (found["statuses"], found["steps"][0]["step"], found["is_sample"]) == ({"completed": 2}, "say", False)
    nothing = noetl("playbook", "statistics", "counted/none", *target)
    assert nothing.returncode != 0 and "no playbook counted/none" in nothing.stderr
    assert noetl("playbook", "statistics", "counted/one@1.0", *target).returncode == 2


def test_a_file_that_is_there_comes_before_the_catalog(
    shared_home: Path, tmp_path: Path, catalog: Callable[..., Any]
) -> None:
    catalog(text_of("both"))
    (tmp_path / "both").write_text(text_of("both", says="from the file"))
    found = noetl("run", "both", "--home", shared_home, "-o", "json", cwd=tmp_path)
    assert only_json(found)["result"]["says"] == "from the file"
    (tmp_path / "both").unlink()
    (tmp_path / "both").mkdir()
    found = noetl("run", "both", "--home", shared_home, "-o", "json", cwd=tmp_path)
    assert only_json(found)["result"]["says"] == "hi"


@pytest.mark.parametrize(
    "command", [("run",), ("playbook", "show"), ("playbook", "diff", "wrong/one")], ids=lambda words: words[-1]
)
@pytest.mark.parametrize(
    ("argument", "message", "hint"),
    [
        ("wrong/oen", "wrong/oen: no such file, and no playbook wrong/oen in the catalog", "did you mean `wrong/one`?"),
        ("wrong/one@9", "no such file, and wrong/one has no version 9", "it has `2`, `1.0`"),
        ("far-away", "no playbook far-away in the catalog", "`noetl-stream playbook list`"),
    ],
)
def test_an_unknown_name_is_reported_with_the_known_ones(
    shared_home: Path, catalog: Callable[..., Any], command: tuple[str, ...], argument: str, message: str, hint: str
) -> None:
    catalog(text_of("wrong/one", "1.0"))
    catalog(text_of("wrong/one"))
    found = noetl(*command, argument, "--home", shared_home)
    assert found.returncode == 2
    assert message in one_clear_line(found)
    assert hint in found.stderr


def test_an_ambiguous_version_names_both_revisions(shared_home: Path, catalog: Callable[..., Any]) -> None:
    catalog(text_of("wrong/two", "2"))
    catalog(text_of("wrong/two"))
    found = noetl("run", "wrong/two@2", "--home", shared_home)
    assert found.returncode == 2
    assert "wrong/two@2 is both a version and, of a different text, a revision" in one_clear_line(found)
    assert noetl("run", "wrong/two@#2", "--home", shared_home).returncode == 0


@pytest.mark.parametrize("argument", ["absent.yaml", "./absent", "~/absent", "a b", "a@1@2", "a//b", "a@", "/a/b"])
def test_a_word_that_is_not_a_path_is_a_missing_file(fresh_home: Path, tmp_path: Path, argument: str) -> None:
    found = noetl("run", argument, "--home", fresh_home, cwd=tmp_path)
    assert found.returncode == 2
    assert "no such file" in one_clear_line(found)
    assert "give a file, or the address of a registered playbook: PATH[@VERSION]" in found.stderr
    assert not fresh_home.exists()


def test_versions_of_an_unknown_path_suggests_the_nearest(shared_home: Path, catalog: Callable[..., Any]) -> None:
    catalog(text_of("wrong/three"))
    found = noetl("playbook", "versions", "wrong/thre", "--home", shared_home)
    assert found.returncode == 2
    assert "did you mean `wrong/three`?" in one_clear_line(found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "--label", "team"), "--label 'team': expected KEY=VALUE"),
        (("versions", "a@1"), "'a@1' is not a path in the catalog"),
        (("register", "absent.yaml"), "absent.yaml: no such file"),
        (("diff", "absent.yaml", "a"), "absent.yaml: no such file"),
    ],
)
def test_a_mistake_is_named_before_anything_is_started(fresh_home: Path, words: tuple[str, ...], message: str) -> None:
    found = noetl("playbook", *words, "--home", fresh_home)
    assert found.returncode == 2
    assert message in one_clear_line(found)
    assert not fresh_home.exists()


def test_a_file_that_is_not_text_is_named(playbook: Write) -> None:
    file = playbook("")
    file.write_bytes(b"\xff\xfe")
    assert f"{file}:1: byte 0xff is not UTF-8" in one_clear_line(noetl("playbook", "show", file))


def test_the_first_command_of_a_new_home_may_be_one_of_the_catalog(fresh_home: Path, playbook: Write) -> None:
    assert noetl("playbook", "list", "-o", "json", "--home", fresh_home).stdout == "[]\n"
    assert noetl("playbook", "register", playbook(text_of("new/one")), "--home", fresh_home).returncode == 0
    assert noetl("playbook", "list", "-o", "name", "--home", fresh_home).stdout == "new/one\n"


@pytest.mark.parametrize("command", ["register", "list", "versions", "show", "explain", "diff"])
def test_every_command_has_a_help_that_reads_as_documentation(command: str) -> None:
    found = noetl("playbook", command, "--help")
    assert found.returncode == 0
    assert found.stdout.startswith(f"Usage: noetl-stream playbook {command}")
    assert len(found.stdout.splitlines()) > 10
    short = next(line for line in noetl("playbook", "--help").stdout.splitlines() if line.startswith(f"  {command} "))
    assert not short.endswith("...")


def test_checking_loads_no_library_of_the_stores() -> None:
    found = cli_program.noetl("playbook", "check", "--help", PYTHONPROFILEIMPORTTIME="1")
    assert " noetl_stream.playbook.compile.compiler\n" in found.stderr
    for costly in ("asyncpg", "nats", "uvloop", "psutil"):
        assert f" {costly}\n" not in found.stderr

"""``docs`` and ``explain``: the documentation that comes with the program, and its addresses."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import fields

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.docs import FOLDERS, SECTIONS, explanations, find_topic, topics
from noetl_stream.errors import NotFound
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ERROR_KINDS
from noetl_stream.model.status import RejectionCode
from noetl_stream.playbook.codes import Code
from noetl_stream.ports.operations.problems import PROBLEMS
from warm_program import noetl

ROOT = Path(__file__).resolve().parents[2]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]

A_FILE: re.Pattern[str] = re.compile(r"\bdocs/|\b[\w-]+\.md\b|\bnats\.conf\b")
"""What names a file of the source tree."""

NO_MESSAGES = {
    ("cli/examples.py", "README.md"),  # which it writes
    ("cli/tool.py", "README.md"),
    ("local/nats_server.py", "nats.conf"),
    ("operations/doctor/findings.py", "nats-server -c nats.conf"),  # the file of the user's own NATS
    ("settings/sources/environment.py", "see limits.md"),  # which a page has
}


CODE_OF_A_CALL = {"RunWarning": (0, "kind"), "WarningDocument": (0, "kind"), "Diagnostic": (1, "code")}
"""Where calls that make what a user is shown have its code."""


def codes_made() -> dict[str, set[str]]:
    """The constants that stand for codes in such calls anywhere in the program."""
    found: dict[str, set[str]] = {name: set() for name in CODE_OF_A_CALL}
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func).rpartition(".")[2]) in CODE_OF_A_CALL:
                place, word = CODE_OF_A_CALL[name]
                given = [*node.args[place : place + 1], *(key.value for key in node.keywords if key.arg == word)]
                found[name] |= {one.value for one in given if isinstance(one, ast.Constant)}
    return found


def test_every_code_of_the_program_is_explained() -> None:
    found: dict[str, set[str]] = {}
    for one in explanations():
        found.setdefault(one.what, set()).add(one.code)
    assert {one.code: one.text for one in explanations() if one.what == "an error kind"} == ERROR_KINDS
    assert found["an exit code"] == {str(int(code)) for code in ExitCode}
    assert found["a diagnostic"] == {*get_args(Code)}
    assert found["a refusal of a request"] == {*get_args(RejectionCode)}
    assert found["a problem of the HTTP API"] == {kind.name for kind in PROBLEMS}
    assert found["a limit of an execution"] == {field.name for field in fields(Limits)}
    made = codes_made()
    assert all(made.values()), "the calls are found"
    assert made["RunWarning"] | made["WarningDocument"] == found["a warning of a run"]
    assert made["Diagnostic"] <= found["a diagnostic"]
    assert {section.what for section in SECTIONS} == found.keys()
    assert all(one.text for one in explanations())


@pytest.mark.parametrize("written", ["playbook-refused", "/problems/playbook-refused"])
def test_a_problem_is_explained_by_its_type(written: str) -> None:
    lines = noetl("explain", written).stdout.splitlines()
    assert lines[:2] == ["playbook-refused is a problem of the HTTP API.", "Status: 422"]


def test_an_explanation_is_what_the_page_says() -> None:
    found = noetl("explain", "http_status")
    assert found.stdout.splitlines() == [
        "http_status is an error kind.",
        ERROR_KINDS["http_status"],
        f"  more: noetl-stream docs reference/tools, or {URLS['Documentation']}/reference/tools.md",
    ]


def test_an_unknown_code_is_answered_with_those_like_it() -> None:
    found = noetl("explain", "status")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "noetl-stream: no code 'status' is known\n  codes: exit_status, http_status\n"


def test_a_code_that_resembles_none_is_answered_with_the_pages_that_have_them() -> None:
    found = noetl("explain", "E42")
    pages = ", ".join(dict.fromkeys(section.topic for section in SECTIONS))
    assert (found.returncode, found.stdout) == (2, "")
    hint = f"the codes are in {pages}: `noetl-stream docs TOPIC`"
    assert found.stderr == f"noetl-stream: no code 'E42' is known\n  {hint}\n"


@pytest.mark.parametrize("written", ["nevr_set", "Never-Set", "warning[never_set]"])
def test_a_code_written_differently_is_proposed(written: str) -> None:
    found = noetl("explain", written)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"noetl-stream: no code {written!r} is known\n  codes: ")
    assert "never_set" in found.stderr.splitlines()[1]


def diagnostics_of_the_language() -> set[str]:
    """The codes in the table of LANGUAGE §3 *Diagnostics*."""
    page = (ROOT / "docs" / "reference" / "language.md").read_text()
    section = re.split(r"^#+ ", page.partition("### Diagnostics\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| [^|]+ \|(.*)\|$", section, re.MULTILINE)
    return {code for row in rows for codes in re.findall(r"`([^`]+)`", row) for code in codes.split()}


def test_every_diagnostic_is_explained_by_what_is_wrong_and_what_to_do() -> None:
    told = [one for one in explanations() if one.what == "a diagnostic"]
    assert sorted(one.code for one in told) == sorted(diagnostics_of_the_language())
    for one in told:
        assert re.fullmatch(r"what is wrong: .+\.\nwhat to do: .+\.", one.text), one


def test_a_diagnostic_says_what_to_do() -> None:
    found = noetl("explain", "never_set")
    assert found.stdout.splitlines() == [
        "never_set is a diagnostic.",
        "what is wrong: A template reads a key that nothing sets, so that it has no value.",
        "what to do: Correct the name, or set the key; for what comes from outside, add a `wait`.",
        f"  more: noetl-stream docs reference/diagnostics, or {URLS['Documentation']}/reference/diagnostics.md",
    ]


def test_every_page_has_a_title_and_an_address() -> None:
    files = {f"{folder}/{file.stem}" for folder in FOLDERS for file in (ROOT / "docs" / folder).glob("*.md")}
    assert {one.topic for one in topics()} == files
    assert all(one.title and one.url == f"{URLS['Documentation']}/{one.topic}.md" for one in topics())


def test_a_page_is_named_with_or_without_its_folder() -> None:
    assert noetl("docs", "upgrade").stdout == noetl("docs", "how-to/upgrade").stdout
    assert noetl("docs", "upgrade", "--text").stdout == (ROOT / "docs" / "how-to" / "upgrade.md").read_text()
    both = noetl("docs", "scale")
    assert (both.returncode, "how-to/scale, explanation/scale" in both.stderr) == (2, True)


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_one_line(option: str) -> None:
    assert re.fullmatch(r"noetl-stream \d+\.\d+\.\d+\S*\n", noetl(option).stdout)


def test_no_message_names_a_file_that_a_user_may_lack() -> None:
    """A message names a page by :func:`noetl_stream.errors.page`, and the page is there."""
    named, pages = set(), set()
    for file in (ROOT / "src" / "noetl_stream").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        name = str(file.relative_to(ROOT / "src" / "noetl_stream"))
        named |= {(name, text) for text in messages(tree) if A_FILE.search(text)}
        pages |= {topic for topic in pages_of(tree) if topic is not None}
    assert named == NO_MESSAGES
    assert pages
    for topic in pages:
        find_topic(topic)
    with pytest.raises(NotFound):
        find_topic("nothing")


def messages(tree: ast.AST) -> Iterator[str]:
    """The texts of a module but those that say what code does."""
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.value


def pages_of(tree: ast.AST) -> Iterator[str | None]:
    """The pages that messages of a module name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "page":
            yield node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None

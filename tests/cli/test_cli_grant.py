"""``noetl-stream grant``: what playbooks may use, as a file says it or an admin registers it."""

from __future__ import annotations

import getpass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from cli_program import only_json
from warm_program import noetl

GRANTS = """
grants:
- paths: [team/a]
  credentials: [warehouse]
  pools: [default, "a_*"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "grants.yaml"
    made.write_text(GRANTS)
    return made


def test_a_file_is_checked(file: Path) -> None:
    assert noetl("grant", "check", file).stdout == f"{file}: 1 grants\n"
    file.write_text("grants: [{paths: [team/../b]}]")
    for refused in (noetl("grant", "check", file), noetl("grant", "apply", file, "--replaces", "0")):
        assert refused.returncode == 2
        assert f"{file}:1: grant 1: paths: 'team/../b' is not a path" in refused.stderr


def test_the_grants_of_a_playbook_are_listed(file: Path) -> None:
    shown = noetl("grant", "show", "team/a/report", "-o", "json", NOETL_GRANTS=str(file))
    assert only_json(shown) == [
        {"sort": "credentials", "name": "warehouse"},
        {"sort": "pools", "name": "default"},
        {"sort": "pools", "name": "a_*"},
    ]
    assert only_json(noetl("grant", "show", "team/ab", "--file", file, "-o", "json")) == []


def test_a_default_that_there_is_not_is_refused() -> None:
    refused = noetl("grant", "show", "sales/x", NOETL_GRANTS_DEFAULT="mine")
    assert refused.returncode == 2
    assert "use one of everything, own, nothing" in refused.stderr


@pytest.mark.xdist_group("stack")
def test_an_admin_registers_grants_and_changes_what_nobody_has_changed_meanwhile(own_home: Path, file: Path) -> None:
    def grant(*words: object, **settings: str) -> CompletedProcess[str]:
        return noetl("grant", *words, "--home", own_home, **settings)

    assert grant("get").stderr == "there are none: NOETL_GRANTS_DEFAULT says what playbooks may use\n"
    assert only_json(grant("show", "team/ab", "-o", "json"))[0] == {"sort": "credentials", "name": "*"}
    done = grant("apply", file, "--replaces", "0", "--reason", "as agreed")
    assert (done.returncode, done.stdout) == (0, "registered revision 1 of the grants\n"), done.stderr
    assert only_json(grant("show", "team/a/report", "-o", "json"))[0] == {"sort": "credentials", "name": "warehouse"}
    assert only_json(grant("show", "team/ab", "-o", "json")) == [], "the embedded stack is open without grants only"
    file.write_text("grants: []\n")
    later = grant("apply", file, "--replaces", "0")
    assert (later.returncode, later.stderr.splitlines()[0]) == (
        1,
        f"noetl-stream: the grants have revision 1, registered by {getpass.getuser()}: the next is 2, not 1",
    )
    assert grant("apply", file, "--replaces", "1", NOETL_GRANTS=str(file)).stderr.startswith(
        "noetl-stream: a file of the operator says what playbooks may use: NOETL_GRANTS of this process\n"
    )
    assert grant("get").stdout == GRANTS
    audited = only_json(noetl("audit", "list", "--operation", "putGrants", "-o", "json", "--home", own_home))
    assert [(one["target"], one["status"], one["reason"]) for one in audited] == [
        ("2", 409, "conflict"),
        ("1", 412, "version-mismatch"),
        ("1", 200, "as agreed"),
    ]

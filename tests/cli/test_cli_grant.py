"""``noetl-stream grant``: what the operator's grants file lets playbooks use."""

from __future__ import annotations

from pathlib import Path

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
    refused = noetl("grant", "check", file)
    assert refused.returncode == 2
    assert "grant 1: paths: 'team/../b' is not a path" in refused.stderr


def test_what_a_playbook_may_use_is_listed(file: Path) -> None:
    shown = noetl("grant", "show", "team/a/report", "-o", "json", NOETL_GRANTS=str(file))
    assert only_json(shown) == [
        {"sort": "credentials", "name": "warehouse"},
        {"sort": "pools", "name": "default"},
        {"sort": "pools", "name": "a_*"},
    ]
    assert only_json(noetl("grant", "show", "team/ab", "--file", file, "-o", "json")) == []


def test_without_a_file_everything_is_granted() -> None:
    refused = noetl("grant", "show", "team/a")
    assert refused.returncode == 2
    assert "NOETL_GRANTS is not set: every playbook may use everything" in refused.stderr


def test_the_default_of_the_installation_is_listed() -> None:
    shown = noetl("grant", "show", "sales/x", "-o", "json", NOETL_GRANTS_DEFAULT="own")
    assert only_json(shown) == [
        {"sort": "credentials", "name": "sales.*"},
        {"sort": "calls", "name": "sales"},
        {"sort": "pools", "name": "*"},
        {"sort": "kinds", "name": "*"},
    ]
    refused = noetl("grant", "show", "sales/x", NOETL_GRANTS_DEFAULT="mine")
    assert refused.returncode == 2
    assert "use one of everything, own, nothing" in refused.stderr

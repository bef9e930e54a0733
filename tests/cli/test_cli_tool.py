"""`tool list` and `tool new`; the package that it writes is tried by journeys/test_journey_tool_kind.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_program import one_clear_line
from warm_program import noetl

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "write-a-tool-kind.md").read_text()


def test_every_kind_is_listed_with_the_package_it_comes_from() -> None:
    kinds = {
        one["kind"]: one for one in json.loads(noetl("tool", "list", "-o", "json", NOETL_KINDS_OFF="shell").stdout)
    }
    assert kinds["quantum"]["package"] == "noetl-stream-quantum"
    assert "circuit" in kinds["quantum"]["inputs"]
    assert (kinds["shell"]["package"], kinds["shell"]["is_off"]) == ("noetl-stream-cli", True)
    assert not kinds["http"]["is_off"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Lamp", "'Lamp' cannot be the name of a kind"),
        ("class", "'class' cannot be the name of a kind"),
        ("duckdb", "the kind 'duckdb' comes with noetl-stream"),
        ("wait", "the kind 'wait' belongs to the language"),
    ],
)
def test_a_name_that_no_kind_can_have_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    refused = noetl("tool", "new", name, cwd=tmp_path)
    assert refused.returncode == 2
    assert reason in one_clear_line(refused)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made/README.md").write_text("mine")
    refused = noetl("tool", "new", "lamp", "--directory", "made", cwd=tmp_path)
    assert refused.returncode == 2
    assert "nothing written, because these files exist: made/README.md" in refused.stderr
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["README.md"]

"""The how-to guides, followed as they stand on a stack that is up."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from guide_stages import GUIDES, PAGES, TEXTS, Stage, typed_texts
from journey_stack import ROOT
from walkthrough import Walkthrough, free_ports, steps

from warm_program import write_script

pytestmark = [
    pytest.mark.xdist_group("stack"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="some guides use curl, which is not installed"),
]

TUTORIALS = ROOT / "docs" / "tutorials"

SETTINGS_OF_OTHERS = {
    "let-an-agent-work.md": "agents/test_agents_docs.py",
    "set-up-an-editor.md": "docs/test_editor_page.py",
}
"""They have JSON and Lua for other programs, which those tests read."""

LONG = {"drain-a-node.md", "notify.md", "quantum.md", "scale.md"}
"""They take about as long as all others together."""

RUN_WITHOUT_READING = {
    "conftest.py": "starts the shared stack with the setting of the page",
    "store/test_archive.py": "reads an archive with each command of the page",
    "store/test_backups.py": "restores into a home that has the keys of another",
}
"""Tests that do what a page says by other names of theirs."""

TESTED = re.compile(r'bash|sh|sql|python|ts|toml|text|yaml \w+|\w+ title="[^"]+"')
READ = sorted(GUIDES.glob("*.md"))
FOLLOWED = [page for page in READ if page.name != "release.md"]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.verify if page.name in LONG else ())
        for page in READ
        if Stage.EMBEDDED in PAGES.get(page.name, ())
    ],
)
def test_a_guide_does_what_it_says(page: Path, shared_home: Path, tmp_path: Path) -> None:
    gateway = re.search(r"listening on http://127\.0\.0\.1:(\d+)", (shared_home / "dev.log").read_text())
    assert gateway is not None
    second, airports, travel = free_ports(3)
    elsewhere = {"8080": gateway[1], "8081": second, "8099": airports, "8098": travel, "~/.noetl": str(shared_home)}
    shutil.copytree(ROOT / "playbooks", tmp_path / "playbooks", ignore=shutil.ignore_patterns("__pycache__"))
    for file in filter(Path.is_file, (tmp_path / "playbooks").rglob("*")):
        file.write_text(file.read_text().replace("8099", airports).replace("8098", travel))
    environment = {
        "HOME": str(tmp_path),
        "NOETL_HOME": str(shared_home),
        "PATH": f"{write_script(tmp_path).parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
    }
    with Walkthrough(tmp_path, environment, elsewhere) as reader:
        for step in steps(page.read_text()):
            if not step.installs:
                reader.do(step)


@pytest.mark.parametrize("page", [*FOLLOWED, *TUTORIALS.glob("*.md")], ids=lambda page: page.stem)
def test_every_block_of_a_page_is_of_a_sort_that_some_test_runs(page: Path) -> None:
    """Parts of playbooks are checked, SQL, Python and TypeScript are run by tests of their own, `sh` by that of all
    documents, and `text` that is no output, line by line, by deploy/test_guide_commands.py.
    """
    text = page.read_text()
    fences = re.findall(r"^ *```(\w.*)$", text, re.MULTILINE)
    settings = {"json", "lua"} if page.name in SETTINGS_OF_OTHERS else set()
    assert [one for one in fences if not TESTED.fullmatch(one) and one not in settings] == []
    assert len([one for one in fences if one == "bash" or "title=" in one]) == len(steps(text))


@pytest.mark.parametrize("page", READ, ids=lambda page: page.stem)
def test_every_command_of_a_guide_has_a_stage_that_runs_it(page: Path) -> None:
    """Add what is missing to guide_stages.py, which says what each stage is."""
    assert ("```bash" in page.read_text()) == (page.name in PAGES)
    known, found = TEXTS.get(page.name, {}), list(typed_texts(page))
    stages = [[one for one in known if line.startswith(one)] for line in found]
    assert [line for line, those in zip(found, stages, strict=True) if not those] == []
    assert known.keys() == {one for those in stages for one in those}, "an entry has lost its block"


def test_tests_of_other_folders_that_run_a_guide_read_it() -> None:
    elsewhere = {(page, where) for page, where in PAGES.items() if isinstance(where, str)}
    elsewhere |= {(page, one) for page, known in TEXTS.items() for one in known.values() if not isinstance(one, Stage)}
    for page, test in elsewhere:
        text = (ROOT / "tests" / test).read_text()
        assert page in text or test in RUN_WITHOUT_READING, f"{test} does not read {page}"


def test_settings_of_other_programs_are_read_by_some_test() -> None:
    for name, test in SETTINGS_OF_OTHERS.items():
        assert name in (ROOT / "tests" / test).read_text(), f"{test} does not read {name}"

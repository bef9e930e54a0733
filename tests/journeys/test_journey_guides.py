"""The how-to guides, followed as they stand on a stack that is up."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from journey_stack import ROOT
from walkthrough import Walkthrough, free_ports, steps

from warm_program import write_script

pytestmark = [
    pytest.mark.xdist_group("stack"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="some guides use curl, which is not installed"),
]

GUIDES = ROOT / "docs" / "how-to"
TUTORIALS = ROOT / "docs" / "tutorials"
TESTED_ELSEWHERE = {
    "run-in-containers.md": "deploy/test_compose_page.py",
    "use-http.md": "gateway/test_gateway_docs.py",
    "run-with-systemd.md": "deploy/test_systemd_units.py",
    "own-servers.md": "journeys/test_journey_tutorials.py",
    "move-to-another-cluster.md": "journeys/test_journey_move.py",
    "write-a-tool-kind.md": "journeys/test_journey_tool_kind.py",
}
"""They need what a stack of one's own does not have."""

SETTINGS_OF_OTHERS = {
    "let-an-agent-work.md": "agents/test_agents_docs.py",
    "set-up-an-editor.md": "docs/test_editor_page.py",
}
"""They have JSON and Lua for other programs, which those tests read."""

LONG = {"drain-a-node.md", "notify.md", "quantum.md", "scale.md"}
"""They take about as long as all others together."""

FOR_MAINTAINERS = {"release.md"}
"""It tags and pushes."""

TESTED = re.compile(r'bash|sh|sql|python|toml|text|yaml \w+|\w+ title="[^"]+"')
READ = [page for page in sorted(GUIDES.glob("*.md")) if page.name not in FOR_MAINTAINERS]
PAGES = [page for page in READ if "```bash" in page.read_text()]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.verify if page.name in LONG else ())
        for page in PAGES
        if page.name not in TESTED_ELSEWHERE
    ],
)
def test_a_guide_does_what_it_says(page: Path, shared_home: Path, tmp_path: Path) -> None:
    gateway = re.search(r"listening on http://127\.0\.0\.1:(\d+)", (shared_home / "dev.log").read_text())
    assert gateway is not None
    second, airports, travel = free_ports(3)
    elsewhere = {"8080": gateway[1], "8081": second, "8099": airports, "8098": travel, "~/.noetl": str(shared_home)}
    shutil.copytree(ROOT / "playbooks", tmp_path / "playbooks", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (tmp_path / "playbooks").iterdir():
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


@pytest.mark.parametrize("page", [*READ, *TUTORIALS.glob("*.md")], ids=lambda page: page.stem)
def test_every_block_of_a_page_is_of_a_sort_that_some_test_runs(page: Path) -> None:
    """Parts of playbooks are checked, SQL and Python are run by tests of their own, `sh` by that of all documents, and
    `text` that is no output, line by line, by deploy/test_guide_commands.py.
    """
    text = page.read_text()
    fences = re.findall(r"^ *```(\w.*)$", text, re.MULTILINE)
    settings = {"json", "lua"} if page.name in SETTINGS_OF_OTHERS else set()
    assert [one for one in fences if not TESTED.fullmatch(one) and one not in settings] == []
    assert len([one for one in fences if one == "bash" or "title=" in one]) == len(steps(text))


def test_every_guide_with_commands_is_followed_by_some_test() -> None:
    for name, test in TESTED_ELSEWHERE.items():
        assert name in {page.name for page in PAGES}
        assert name in (ROOT / "tests" / test).read_text(), f"{test} does not read {name}"


def test_settings_of_other_programs_are_read_by_some_test() -> None:
    for name, test in SETTINGS_OF_OTHERS.items():
        assert name in (ROOT / "tests" / test).read_text(), f"{test} does not read {name}"

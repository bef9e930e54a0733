"""What newcomers and code hosts are told exists: make targets, programs, files and packages."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "CONTRIBUTING.md"
WORKFLOWS = ROOT / ".github" / "workflows"
HOOKS = ROOT / ".pre-commit-config.yaml"
CONTAINER = ROOT / ".devcontainer" / "devcontainer.json"
DOOR = sorted([GUIDE, HOOKS, CONTAINER, *(ROOT / ".github").rglob("*.yml"), *(ROOT / ".github").rglob("*.md")])
TARGETS = frozenset(re.findall(r"^([\w./]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROSE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MADE = re.compile(r"(?<![\w-])make((?: [\w./=]+)+)")
PATH = re.compile(r"(?<![\w/.-])((?:\.?[\w-]+/)+[\w.*-]+|\.[a-z][\w.-]+(?:/[\w.-]+)*|[A-Z]\w+\.md)(?![\w/*])")
"""A path as it is written: with a slash, of a hidden file, or of a page at the root."""


def read(file: Path) -> Any:
    return YAML(typ="safe").load(file.read_text())


def code_of(file: Path) -> str:
    """What a file says to type or to read: of Markdown, what is set as code; of others, all but comments."""
    text = file.read_text()
    if file.suffix == ".md":
        return "\n".join([*BLOCK.findall(text), *PROSE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))])
    return re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("file", DOOR, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_make_target_exists(file: Path) -> None:
    words = [
        word
        for line in code_of(file).splitlines()
        for made in MADE.findall(line.partition(" #")[0])
        for word in made.split()
    ]
    assert {word for word in words if "=" not in word} <= TARGETS


@pytest.mark.parametrize("file", [GUIDE, HOOKS], ids=lambda file: file.name)
def test_every_path_exists(file: Path) -> None:
    named = {path for path in PATH.findall(code_of(file)) if path != ".venv/cluster"}  # the Makefile makes it
    assert len(named) > 1
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_the_guide_lists_each_package_of_the_program_once() -> None:
    _, _, inside = GUIDE.read_text().partition("Inside `src/noetl_stream`")
    listed = [name for row in re.findall(r"^\| (`[^|]+) \|", inside, re.MULTILINE) for name in PROSE.findall(row)]
    packages = [folder.parent.name for folder in (ROOT / "src" / "noetl_stream").glob("*/__init__.py")]
    assert sorted(listed) == sorted(packages)


@pytest.mark.parametrize("file", [GUIDE, ROOT / "README.md"], ids=lambda file: file.name)
def test_the_tests_that_it_runs_by_name_exist(file: Path) -> None:
    run = re.findall(r"-m pytest -n 0 -q (\S+)(?: -k (\w+))?", file.read_text())
    assert run
    assert {path for path, _ in run if not (ROOT / path).exists()} == set()
    assert [
        word for path, word in run if word and not re.search(rf"def test_\w*{word}", (ROOT / path).read_text())
    ] == []


def runs(workflow: str) -> list[str]:
    """The commands of a workflow."""
    jobs = read(WORKFLOWS / workflow)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_a_change_is_checked_by_the_gate_itself() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert runs("ci.yml") == [".ci/run"]
    assert {"push", "pull_request"} <= set(read(WORKFLOWS / "ci.yml")["on"])


def test_every_night_all_tests_run() -> None:
    assert runs("nightly.yml")[-1] == "make verify EFFORT=2"
    assert "schedule" in read(WORKFLOWS / "nightly.yml")["on"]


def test_a_release_is_signed_as_it_is_built_before_anybody_gets_it() -> None:
    workflow = read(WORKFLOWS / "release.yml")
    assert workflow["on"]["push"] == {"tags": ["v*"]}
    steps = workflow["jobs"]["build"]["steps"]
    taken = [step["uses"].partition("@")[0] if "uses" in step else step["run"] for step in steps]
    assert taken[-3:] == ["make clean wheel sbom", "actions/attest-build-provenance", "actions/upload-artifact"]
    signed, uploaded = steps[-2]["with"], steps[-1]["with"]
    assert signed == {"subject-path": "dist/*"}
    assert uploaded["path"] == signed["subject-path"]
    assert steps[-3]["run"] in (ROOT / "docs" / "how-to" / "release.md").read_text()


SIGNS = {"contents": "read", "id-token": "write", "attestations": "write"}
"""What a job that signs may do beside reading: show who it is, and store what it has signed. One pushes images, too."""


@pytest.mark.parametrize("file", sorted(WORKFLOWS.iterdir()), ids=lambda file: file.name)
def test_a_workflow_may_read_alone_or_sign_and_takes_actions_by_their_hash(file: Path) -> None:
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert steps
    assert [step["uses"] for step in steps if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])] == []
    clones = [step for step in steps if step["uses"].startswith("actions/checkout@")]
    assert clones
    assert all(step["with"]["persist-credentials"] is False for step in clones)
    allowed = [SIGNS, SIGNS | {"packages": "write"}] if file.name == "release.yml" else []
    assert [job["permissions"] for job in workflow["jobs"].values() if "permissions" in job] == allowed
    assert all("continue-on-error" not in job for job in workflow["jobs"].values())


def test_hooks_and_containers_use_what_the_makefile_installs() -> None:
    (repository,) = read(HOOKS)["repos"]
    assert repository["repo"] == "local"
    assert {hook["entry"].split()[0] for hook in repository["hooks"]} == {".venv/bin/ruff", ".venv/bin/mypy"}
    assert json.loads(CONTAINER.read_text())["postCreateCommand"] == "make .venv/ready .venv/cluster"

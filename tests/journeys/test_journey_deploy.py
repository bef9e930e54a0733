"""The page about projects, followed on a stack that is up, and its workflow, run through a gateway."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from cli_stack import gateway_of
from journey_stack import ROOT
from ruamel.yaml import YAML
from walkthrough import Walkthrough, steps

from cli_program import only_json
from homes import SHARED_FILES
from warm_program import noetl, write_script
from wheels import wheel

pytestmark = pytest.mark.xdist_group("stack")

PAGE = (ROOT / "docs" / "how-to" / "deploy-a-project.md").read_text()

POLARS = """\
class Series(list):
    def sum(self):
        return sum(self)
"""
"""What the page uses of polars: no test asks an index on the network."""


@pytest.mark.verify
def test_the_page_leads_to_a_project_that_its_workflow_deploys(shared_home: Path, tmp_path: Path) -> None:
    programs = f"{write_script(tmp_path).parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
    folder = tmp_path / "project"
    folder.mkdir()
    wheel(SHARED_FILES, "polars", "1.30.0", {"polars.py": POLARS})
    index = {"NOETL_PYTHON_INDEX": str(SHARED_FILES)}
    given = {"HOME": str(tmp_path), "NOETL_HOME": str(shared_home), "PATH": programs, **index}
    with Walkthrough(folder, given, {}) as reader:
        for step in steps(PAGE):
            reader.do(step)
    workflow = YAML(typ="safe").load(folder / ".github" / "workflows" / "deploy.yml")
    report = folder / "playbooks" / "report.yaml"
    report.write_text(report.read_text().replace("name: report", "name: daily report"))
    token = noetl(
        "token", "create", "totals-workflow", "--role", "author", "--paths", "team/totals", "--home", shared_home
    ).stdout.strip()
    assert {"NOETL_URL", "NOETL_TOKEN"} == set(workflow["jobs"]["deploy"]["env"])
    for step in workflow["jobs"]["deploy"]["steps"]:
        command = shlex.split(step.get("run", ""))
        if command[:1] == ["noetl-stream"]:
            target = {"NOETL_URL": gateway_of(shared_home), "NOETL_TOKEN": token, "HOME": str(tmp_path), **index}
            ended = noetl(*command[1:], cwd=folder, **target)
            assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
    newest, *_ = only_json(noetl("playbook", "versions", "team/totals/report", "--home", shared_home, "-o", "json"))
    assert (newest["revision"], newest["name"], newest["registered_by"]) == (2, "daily report", "token:totals-workflow")
    pulled = folder / "copy" / "playbooks" / "report.yaml"
    differs = noetl("pull", "copy", cwd=folder, NOETL_HOME=str(shared_home))
    assert (differs.returncode, "copy/playbooks/report.yaml" in differs.stderr) == (2, True)
    assert pulled.read_bytes() != report.read_bytes()
    assert noetl("pull", "copy", "--force", cwd=folder, NOETL_HOME=str(shared_home)).returncode == 0
    assert pulled.read_bytes() == report.read_bytes()


def test_two_documents_that_would_be_one_file_are_refused(shared_home: Path, tmp_path: Path) -> None:
    for path in ("both/both", "both"):
        file = tmp_path / "one.yaml"
        file.write_text(f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{ name: one, path: {path} }}
workflow: [ {{ step: start, tool: {{ kind: noop }} }} ]
""")
        assert noetl("playbook", "register", file, "--home", shared_home).returncode == 0
    refused = noetl("pull", tmp_path / "copy", "--path", "both", "--home", shared_home)
    assert (refused.returncode, "playbooks/both.yaml would be the file of" in refused.stderr) == (2, True)
    assert not (tmp_path / "copy").exists()

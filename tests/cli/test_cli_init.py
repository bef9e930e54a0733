"""A project from an example: what `init` writes, what it refuses, and what the examples say of themselves."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli_program import one_clear_line, only_json
from warm_program import noetl

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
FILES = [*PLAYBOOKS.glob("*.yaml"), *PLAYBOOKS.glob("*/playbooks/*.yaml")]
EXAMPLES = {path.stem: path for path in sorted(FILES, key=lambda path: path.stem) if "." not in path.stem}


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_init_in_an_empty_folder_writes_hello_and_tells_the_next_command(tmp_path: Path) -> None:
    made = noetl("init", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert set(made.stdout.splitlines()) == files_of(tmp_path) == {"playbooks/hello.yaml", "README.md", ".gitignore"}
    assert made.stderr == "next: noetl-stream run playbooks/hello.yaml --set name=Ada\n"
    assert (tmp_path / "playbooks/hello.yaml").read_text() == (PLAYBOOKS / "hello.yaml").read_text()


def test_init_makes_the_folder_and_names_it_for_a_shell(tmp_path: Path) -> None:
    made = noetl("init", "a b/c", cwd=tmp_path)
    assert made.stdout.splitlines()[0] == "a b/c/playbooks/hello.yaml"
    assert made.stderr.startswith("next: cd 'a b/c' && noetl-stream run ")


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_project_of_every_example_has_a_playbook_that_checks_and_all_files_that_its_readme_names(
    tmp_path: Path, name: str
) -> None:
    assert noetl("init", tmp_path, "--example", name).returncode == 0
    assert noetl("playbook", "check", f"playbooks/{name}.yaml", cwd=tmp_path).returncode == 0
    readme = (tmp_path / "README.md").read_text()
    named = set(re.findall(r"\bplaybooks/\w+\.(?:yaml|py)\b", readme))
    written = {path for path in files_of(tmp_path) if path.startswith("playbooks/")}
    assert named == {path for path in written if not path.endswith(".test.yaml")}
    assert re.match(rf"# {name}\n\n[A-Z].+", readme)
    assert re.search(rf"^noetl-stream run playbooks/{name}\.yaml", readme, re.M)
    assert re.search(r"^Expect: \S", readme, re.M)


@pytest.mark.xdist_group("stack")
@pytest.mark.parametrize(("name", "commands"), [("hello", 3), ("python", 7)])
def test_the_commands_of_the_readme_work(shared_home: Path, tmp_path: Path, name: str, commands: int) -> None:
    noetl("init", "--example", name, cwd=tmp_path)
    (block,) = re.findall(r"^```sh\n(.*?)^```$", (tmp_path / "README.md").read_text(), re.M | re.S)
    for line in block.splitlines():
        program, *words = shlex.split(line)
        if program == "noetl-stream":
            ended = noetl(*words, cwd=tmp_path, NOETL_HOME=str(shared_home))
        else:  # the unit test, which needs nothing of the program
            path = f"PATH={Path(sys.executable).parent}"
            ended = subprocess.run(["env", path, program, *words], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0, (line, ended.stderr)
    assert len(block.splitlines()) == commands


@pytest.mark.parametrize("occupied", ["README.md", ".gitignore", "playbooks/hello.yaml"])
def test_init_overwrites_nothing_and_then_writes_nothing(tmp_path: Path, occupied: str) -> None:
    (tmp_path / occupied).parent.mkdir(exist_ok=True)
    (tmp_path / occupied).write_text("mine")
    refused = noetl("init", cwd=tmp_path)
    assert refused.returncode == 2
    assert occupied in one_clear_line(refused)
    assert files_of(tmp_path) == {occupied}
    assert (tmp_path / occupied).read_text() == "mine"


def test_init_does_not_write_through_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "README.md").symlink_to(tmp_path / "elsewhere")
    assert noetl("init", cwd=tmp_path).returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = noetl("init", "file/project", cwd=tmp_path)
    assert refused.returncode == 2
    assert "file/project/playbooks/hello.yaml: cannot be written: Not a directory" in one_clear_line(refused)


@pytest.mark.parametrize("command", [("init", "--example", "helo"), ("example", "show", "helo")])
def test_an_unknown_example_is_a_usage_error_that_tells_how_to_find_one(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    refused = noetl(*command, cwd=tmp_path)
    assert refused.returncode == 2
    assert "noetl-stream example list" in one_clear_line(refused)
    assert files_of(tmp_path) == set()


def test_every_example_is_listed_with_a_line_that_describes_it() -> None:
    listed = only_json(noetl("example", "list", "-o", "json"))
    assert [one["name"] for one in listed] == list(EXAMPLES)
    for one in listed:
        assert re.fullmatch(r"[A-Z].{10,100}\.", one["description"]), one
    assert {one["name"]: one["files"] for one in listed}["invoice_all_customers"] == [
        "travel_api.py",
        "invoice_customer.yaml",
    ]
    table = noetl("example", "list").stdout
    assert all(one["description"] in table for one in listed)


@pytest.mark.parametrize("name", EXAMPLES)
def test_show_prints_the_file(name: str) -> None:
    assert noetl("example", "show", name).stdout == EXAMPLES[name].read_text()


def test_a_shell_completes_the_name_of_an_example() -> None:
    words = "noetl-stream init --example invoice"
    completion = {"_NOETL_STREAM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    assert noetl(**completion).stdout.split() == ["plain,invoice_all_customers", "plain,invoice_customer"]

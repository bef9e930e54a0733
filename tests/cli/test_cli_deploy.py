"""``noetl-stream deploy`` before it asks anybody: the file of a project, and its documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_program import HEAD, one_clear_line
from noetl_stream.cli.project.project_file import read_project, texts_of
from noetl_stream.errors import UsageError
from warm_program import noetl

PLAYBOOK = HEAD + "metadata: { name: a, path: team/a }\nworkflow: [{ step: start, tool: { kind: noop } }]\n"
SCHEDULE = "kind: Schedule\n"


def project(folder: Path, text: str, *files: str, name: str = "noetl-stream.toml") -> Path:
    folder.joinpath(name).write_text(text)
    for file in files:
        folder.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(file).write_text(SCHEDULE if "schedule" in file else PLAYBOOK)
    return folder


def refusal(folder: Path) -> tuple[str, str | None]:
    with pytest.raises(UsageError) as refused:
        texts_of(read_project(folder))
    return refused.value.message.replace(f"{folder}/", ""), refused.value.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('name = "a"\n  playboks = []', "2:3: unknown key `playboks`", "did you mean `playbooks`?"),
        ('name = "a"\n[zebra]\n', "2:1: unknown key `zebra`", "known are `name`"),
        ('name = "a"\npackages = 3', "2:1: `packages` is not a list of folders", 'packages = ["src"]'),
        ('name = "a"\npackages = ["../src"]', "2:1: `../src` leads out of the folder", "below that folder"),
        ("context = 'x'", "1:1: `name` is missing", 'name = "team/reports"'),
        ("\nname = 3", "2:1: `name` is not a text", 'name = "…"'),
        ('name = "a b"', "1:1: 'a b' is not a path in the catalog", "separated by `/`"),
        ('name = "a"\nplaybooks = 3', "2:1: `playbooks` is not a list of patterns", "playbooks/**/*.yaml"),
        ('name = "a"\nplaybooks = ["../b/*.yaml"]', "2:1: `../b/*.yaml` leads out of the folder", "below that folder"),
        ('name = "a"\nplaybooks = ["/etc/*"]', "2:1: `/etc/*` leads out of the folder", "below that folder"),
        ('name = "a"\nplaybooks = ["flows/*.yaml"]', " `flows/*.yaml` of `playbooks` matches no file", "mend it"),
        ('name = "a"\nplaybooks = ["**.yaml"]', " `**.yaml` of `playbooks` is not a pattern", None),
        ('name = "a"', " no file matches `schemas/**/*.yaml`", "at least one document"),
        ('name = "a', "1:10: not TOML", None),
        ("name", "1:5: not TOML", None),
    ],
)
def test_a_mistake_in_the_file_of_a_project_is_reported_with_its_place(
    tmp_path: Path, text: str, message: str, hint: str | None
) -> None:
    found, advice = refusal(project(tmp_path, text))
    assert found.startswith(f"noetl-stream.toml:{message}"), found
    assert (advice is None) is (hint is None) and (hint or "") in (advice or "")


def test_a_table_of_pyproject_is_a_project_and_errors_have_its_lines(tmp_path: Path) -> None:
    text = '[project]\nname = "x"\nstray = 1\n\n[tool.noetl-stream]\nname = "team/x"\n'
    folder = project(tmp_path, text, "playbooks/a.yaml", name="pyproject.toml")
    assert read_project(folder).name == "team/x"
    message, _ = refusal(project(tmp_path, f"{text}stray = 2\n", name="pyproject.toml"))
    assert message.startswith("pyproject.toml:7:1: unknown key `stray`")
    message, _ = refusal(project(tmp_path, f"{text}[tool.noetl-stream.stray]\n", name="pyproject.toml"))
    assert message.startswith("pyproject.toml:7:1: unknown key `stray`")


def test_a_folder_without_a_project_is_refused_with_what_to_write(tmp_path: Path) -> None:
    for files in ((), ("pyproject.toml",)):
        for file in files:
            tmp_path.joinpath(file).write_text('[project]\nname = "x"\n')
        with pytest.raises(UsageError, match="no project") as refused:
            read_project(tmp_path)
        assert 'name = "team/reports"' in (refused.value.hint or "")


def test_documents_are_those_that_patterns_match_in_the_order_of_registration_without_tests(tmp_path: Path) -> None:
    files = ("playbooks/b.yaml", "playbooks/deep/a.yaml", "playbooks/deep/a.test.yaml", "schedules/s.yaml")
    folder = project(tmp_path, 'name = "team/x"', *files, "schemas/readme.md")
    found = [(text.kind, Path(text.name).relative_to(folder).as_posix()) for text in texts_of(read_project(folder))]
    playbooks = [("Playbook", "playbooks/b.yaml"), ("Playbook", "playbooks/deep/a.yaml")]
    assert found == [*playbooks, ("Schedule", "schedules/s.yaml")]
    project(tmp_path, 'name = "team/x"\nplaybooks = "playbooks/deep/*.yaml"\nschedules = []\ntests = []')
    assert [Path(text.name).name for text in texts_of(read_project(folder))] == ["a.test.yaml", "a.yaml"]


def test_a_document_of_another_kind_than_its_key_is_refused(tmp_path: Path) -> None:
    folder = project(tmp_path, 'name = "team/x"', "playbooks/schedule.yaml")
    message, hint = refusal(folder)
    assert message == "playbooks/schedule.yaml: has `kind: Schedule`, where a Playbook is expected"
    assert hint == "move the file, or name it in `schedules` of the project"
    project(tmp_path, 'name = "team/x"\nschedules = ["playbooks/sched*.yaml"]')
    assert [text.kind for text in texts_of(read_project(folder))] == ["Schedule"]


def test_the_command_ends_with_one_line_and_a_hint(tmp_path: Path) -> None:
    project(tmp_path, 'name = "a"\npackages = ["src"]', "playbooks/a.yaml")
    found = noetl("deploy", tmp_path)
    assert "src: `packages` names no folder: No such file or directory" in found.stderr
    assert found.returncode == 2 and one_clear_line(found)
    found = noetl("deploy", "--exit-code", tmp_path)
    assert (found.returncode, "--exit-code needs --dry-run" in found.stderr) == (2, True)


def test_the_context_of_a_project_is_used_unless_another_is_chosen(tmp_path: Path) -> None:
    folder = project(tmp_path, 'name = "a"\ncontext = "nowhere"', "playbooks/a.yaml")
    contexts = {"XDG_CONFIG_HOME": str(tmp_path)}
    unchosen = noetl("deploy", folder, NOETL_HOME="", **contexts)
    assert (unchosen.returncode, "context 'nowhere' not found" in unchosen.stderr) == (2, True)
    chosen = noetl("deploy", folder, "--url", "http://127.0.0.1:9", **contexts)
    assert (chosen.returncode, "nowhere" in chosen.stderr) == (3, False)

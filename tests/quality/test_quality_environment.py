"""How the environment is made: which Python, which packages, from which index."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
BASE_PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}"
"""The Python that the environment is made with, which has pip as `make` finds it."""


def pins(lock: str) -> dict[str, str]:
    """The pinned requirement of each package, without its hashes."""
    lines = [line.removesuffix("\\").strip() for line in (ROOT / lock).read_text().splitlines() if line[0].isalpha()]
    return {canonicalize_name(Requirement(line).name): line for line in lines}


def needed_by(names: set[str], package: str) -> set[str]:
    """All packages that this one needs on this machine, and what those need."""
    for text in requires(package) or []:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name not in names and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            names = needed_by(names | {name}, name)
    return names


def test_the_runtime_lock_has_exactly_the_requirements_of_the_program() -> None:
    needed = needed_by(set(), "noetl-stream") - {"noetl-stream-cli"}
    locked = pins("requirements.lock")
    assert needed <= set(locked)
    optional = {name for name, line in locked.items() if Requirement(line).marker is not None}
    assert set(locked) - needed <= optional


def test_the_locks_agree_and_allow_what_the_project_does() -> None:
    runtime, development = pins("requirements.lock"), pins("requirements-dev.lock")
    versions = {name: line.partition(" ;")[0] for name, line in development.items()}
    assert {name: line.partition(" ;")[0] for name, line in runtime.items()}.items() <= versions.items()
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    clients = [tomllib.loads(file.read_text())["project"] for file in ROOT.glob("clients/*/pyproject.toml")]
    needed = [text for project in (document["project"], *clients) for text in project["dependencies"]]
    for text in [*needed, *document["dependency-groups"]["dev"]]:
        requirement = Requirement(text)
        if requirement.name == "noetl-stream-cli":
            continue
        (pin,) = Requirement(development[canonicalize_name(requirement.name)]).specifier
        assert requirement.specifier.contains(pin.version), text


def test_the_development_lock_holds_what_the_plugins_need() -> None:
    development = pins("requirements-dev.lock")
    projects = [tomllib.loads(file.read_text())["project"] for file in ROOT.glob("plugins/*/pyproject.toml")]
    needed = [Requirement(text) for project in projects for text in project["dependencies"]]
    for requirement in needed:
        if requirement.name == "noetl-stream":
            assert requirement.specifier.contains(version("noetl-stream"))
            continue
        (pin,) = Requirement(development[canonicalize_name(requirement.name)]).specifier
        assert requirement.specifier.contains(pin.version), requirement
    assert len(needed) > len(projects) > 0


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_every_package_of_a_lock_is_known_by_its_hashes(lock: str) -> None:
    found = re.findall(r"^[a-z].*?(?=^[a-z]|\Z)", (ROOT / lock).read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) >= len(pins(lock))
    assert [block.splitlines()[0] for block in found if "--hash=sha256:" not in block] == []


def test_the_page_lists_the_licence_of_every_package() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "scripts/licences.py"], capture_output=True, text=True, check=True
    ).stdout
    assert printed in (ROOT / "docs/reference/licences.md").read_text(), "run scripts/licences.py and replace the table"


def find_python(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", ROOT / "scripts/find-python"], capture_output=True, text=True, env=environment)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for the PATH, in which `old` Pythons are made and real ones linked."""
    (tmp_path / "cat").symlink_to("/bin/cat")
    return tmp_path


def old_python(folder: Path, name: str, version: str) -> None:
    file = folder / name
    file.write_text(f'#!/bin/sh\ncase "$2" in *exit*) exit 1 ;; *) echo {version} ;; esac\n')
    file.chmod(0o755)


def test_the_first_python_that_is_new_enough_is_taken(programs: Path) -> None:
    old_python(programs, "python3", "3.9")
    (programs / "python3.13").symlink_to(BASE_PYTHON)
    found = find_python(PATH=str(programs))
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()).name == "python3.13"


def test_without_a_program_the_error_names_the_places_that_were_searched(programs: Path) -> None:
    old_python(programs, "python3", "3.9")
    old_python(programs, "python", "2.7")
    refused = find_python(PATH=str(programs))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "needs Python 3.11 or newer" in refused.stderr
    assert "looked for: python3 python3.14 python3.13 python3.12 python3.11 python\n" in refused.stderr
    assert "found: python3 3.9, python 2.7\n" in refused.stderr
    assert "make PYTHON=" in refused.stderr


def test_a_python_that_is_named_is_the_only_one_looked_at(programs: Path) -> None:
    (programs / "python3").symlink_to(BASE_PYTHON)
    assert "found: nothing" in find_python(PATH=str(programs), PYTHON="/nowhere/python").stderr
    assert find_python(PATH="/nowhere", PYTHON=str(programs / "python3")).returncode == 0


def settings_for_uv(configuration: Path, **environment: str) -> dict[str, str] | None:
    """What uv is told where pip is configured like this, and by nothing else."""
    if subprocess.run([str(BASE_PYTHON), "-c", "import pip"], capture_output=True).returncode != 0:
        pytest.skip("the Python of this environment came without pip, whose configuration is read here")
    code = "import json, environment; print(json.dumps(environment.index_settings()))"
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    variables |= {"PIP_CONFIG_FILE": str(configuration), "PYTHONPATH": str(ROOT / "scripts"), **environment}
    command = [str(BASE_PYTHON), "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, env=variables, check=True).stdout
    found: dict[str, str] | None = json.loads(printed)
    return found


def test_uv_asks_the_index_that_pip_is_configured_for(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://one.example/simple\n[install]\ntrusted-host = one.example\n")
    found = settings_for_uv(file)
    assert found is not None
    assert found["UV_DEFAULT_INDEX"] == "https://one.example/simple"
    assert found["UV_INSECURE_HOST"] == "one.example"


def test_the_environment_overrides_the_file_and_indexes_are_added(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://one.example/simple\n")
    more = "https://two.example/simple\nhttps://three.example/simple"
    found = settings_for_uv(file, PIP_INDEX_URL="https://other.example", PIP_EXTRA_INDEX_URL=more)
    assert found is not None
    assert found["UV_DEFAULT_INDEX"] == "https://other.example"
    assert found["UV_INDEX"] == "https://two.example/simple https://three.example/simple"
    assert found["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_uv_is_not_used_where_pip_may_not_ask_an_index(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nno-index = true\n")
    assert settings_for_uv(file) is None


def test_the_airports_api_says_what_to_install_where_its_data_is_missing(tmp_path: Path) -> None:
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith("vega_datasets"):
            (tmp_path / installed.name).symlink_to(installed)
    command = [sys.executable, "-S", str(ROOT / "playbooks/airports_api.py"), "--port", "0"]
    refused = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(tmp_path)}, stdin=subprocess.DEVNULL
    )
    assert refused.returncode == 1
    assert refused.stderr == "the airports come with another package: pip install --no-deps vega-datasets\n"


def test_the_makefile_explains_its_targets() -> None:
    # `make test` hands its own level on, and a make below it says which directory it enters.
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    assert [line.split(":")[0] for line in shown.splitlines()] == targets


def test_the_row_that_verify_prints_fits_the_table_of_the_page() -> None:
    code = "import verify; print(verify.row(list(verify.COLUMNS)))"
    command = [sys.executable, "-c", code]
    header = subprocess.run(command, cwd=ROOT / "scripts", capture_output=True, text=True, check=True).stdout
    assert f"\n{header}" in (ROOT / "docs/explanation/reliability.md").read_text()

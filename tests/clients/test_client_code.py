"""What the client is made from, and what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import noetl_stream_client as client
from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream_client import AsyncClient, Client
from noetl_stream_client.routes import ROUTES
from wheel_building import ROOT, build_wheel

sys.path.insert(0, str(ROOT / "scripts"))

from client_code import client_code

HEAVY = ("asyncio", "httpx", "msgspec", "ssl", "subprocess")


def test_the_generated_modules_are_what_the_script_writes() -> None:
    stale = [str(file.relative_to(ROOT)) for file, text in client_code().items() if file.read_text() != text]
    assert stale == [], "run `python scripts/client_code.py`"


def test_both_clients_have_each_verb_that_a_token_opens() -> None:
    offered = {route.operation for route in RESOURCES if route.role and not route.streams and "/v1/" in route.path}
    names = {name.replace("_", "") for name in ROUTES}
    assert names - {"me"} == {name.lower() for name in offered - {"signOut", "getFile"}}
    for name in ROUTES:
        assert hasattr(Client, name) and hasattr(AsyncClient, name)


def loaded_by(names: str) -> set[str]:
    """The modules that a program has which imports these names of the client."""
    code = f"import sys, json; from noetl_stream_client import {names}; print(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    return set(json.loads(ended.stdout))


def test_importing_the_client_loads_neither_its_libraries_nor_what_is_slow() -> None:
    loaded = loaded_by("AsyncClient, Client, NotFound")
    assert loaded & {*HEAVY, "noetl_stream"} == set()
    assert len(loaded) < 110


def test_a_function_that_runs_as_a_task_loads_no_client() -> None:
    loaded = loaded_by("Fatal, Retryable")
    assert {name for name in loaded if name.startswith("noetl_stream_client.")} == {"noetl_stream_client.tasks"}


def test_each_name_of_the_package_is_there() -> None:
    assert [name for name in client.__all__ if getattr(client, name).__name__ != name] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        client.nothing  # noqa: B018  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the wheel, and nothing else of this project."""
    folder = tmp_path_factory.mktemp("client")
    with ZipFile(build_wheel(folder, ROOT / "clients" / "python", "noetl_stream_client")) as wheel:
        wheel.extractall(folder / "installed")
    return folder / "installed"


def test_the_wheel_holds_the_package_its_types_and_its_licence(installed: Path) -> None:
    source = ROOT / "clients" / "python" / "src"
    files = {str(file.relative_to(source)) for file in source.rglob("*") if file.suffix in (".py", ".typed")}
    found = {str(file.relative_to(installed)) for file in installed.rglob("*") if file.is_file()}
    assert {name for name in found if ".dist-info/" not in name} == files
    assert [name for name in found if name.endswith("licenses/LICENSE")]
    (metadata,) = installed.glob("*.dist-info/METADATA")
    assert "Requires-Dist: httpx" in metadata.read_text()


def test_the_client_needs_nothing_of_the_program(installed: Path) -> None:
    code = "import noetl_stream_client as c; c.Client('http://127.0.0.1:1').close(); print(c.__file__)"
    blocked = f"import sys; sys.modules['noetl_stream'] = None; sys.path.insert(0, {str(installed)!r}); {code}"
    ended = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, cwd="/")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(str(installed))

"""README, tutorials, and the guide that needs servers of one's own, followed from beginning to end as they stand: in a
clone, and with nothing but the wheel in an empty folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from journey_stack import ROOT
from walkthrough import PATIENCE_S, Step, Walkthrough, end_background, free_ports, steps

from nats_process import NatsServer
from postgres_pair import one_postgres
from warm_program import write_script
from wheel_building import build_wheels

pytestmark = [
    pytest.mark.xdist_group("journeys"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the pages' commands are for curl, which is not installed"),
]

README = ROOT / "README.md"
PAGES = [
    README,
    *sorted(page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.name != "index.md"),
    ROOT / "docs" / "how-to" / "own-servers.md",
]
OF_A_CLONE = ("playbooks", "docs", "README.md", "Makefile", "nats.conf")
INSTALLED = [page for page in PAGES if "<!-- installation -->" in page.read_text()]
INSTALLATION_S = 900.0
IN_THE_GATE = (README, "a wheel")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not under pytest's: each pytest that starts closes that to other users, and Postgres may run as one."""
    with tempfile.TemporaryDirectory(prefix="noetl-tutorial-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def own_postgres_dsn() -> Iterator[str]:
    with one_postgres("host all all 127.0.0.1/32 trust\n") as running:
        yield running.dsn()


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """A folder with what is in the wheel, and the program that runs it; its libraries are those of the tests."""
    site = folder / ".site"
    for path in build_wheels(tmp_path_factory.mktemp("wheels")):
        with ZipFile(path) as wheel:
            wheel.extractall(site)
    script = site / "noetl-stream"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -m noetl_stream "$@"\n')
    script.chmod(0o755)
    return site


@pytest.mark.parametrize(
    ("page", "having"),
    [
        pytest.param(page, having, marks=() if (page, having) == IN_THE_GATE else pytest.mark.verify)
        for page in PAGES
        for having in ("a wheel", "a clone")
    ],
    ids=lambda given: getattr(given, "stem", given),
)
def test_a_reader_gets_what_the_page_shows(
    page: Path, having: str, folder: Path, own_postgres_dsn: str, request: pytest.FixtureRequest
) -> None:
    found = [step for step in steps(page.read_text()) if not step.installs]
    if having == "a clone":
        found = [step for step in found if not step.is_for_empty_folder]
        for name in OF_A_CLONE:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        programs = str(write_script(folder).parent)
    else:
        programs = str(request.getfixturevalue("program"))
        asked = [f"{programs}/noetl-stream", "version"]
        assert subprocess.run(asked, cwd=folder, capture_output=True, check=True).stdout.startswith(b"noetl-stream ")
    check_page(found, folder, f"{programs}:{Path(sys.executable).parent}", own_postgres_dsn)


@pytest.mark.verify
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "<!-- installation -->" in page.read_text()], ids=lambda page: page.stem
)
def test_a_page_that_installs_begins_with_a_wheel_alone(page: Path, folder: Path, own_postgres_dsn: str) -> None:
    found = sorted(steps(page.read_text()), key=lambda step: not step.installs)
    assert found[0].installs
    build_wheels(folder)
    programs = f"{folder / '.venv' / 'bin'}:{Path(sys.base_prefix) / 'bin'}"
    check_page(found, folder, programs, own_postgres_dsn, patience_s=INSTALLATION_S)


def own_nats(folder: Path) -> NatsServer:
    (folder / ".nats").mkdir()
    return NatsServer(folder / ".nats")


def check_page(
    page: list[Step], folder: Path, programs: str, own_postgres_dsn: str, *, patience_s: float = PATIENCE_S
) -> None:
    """Follows a page and checks what each step shows; programs, ports, NATS and Postgres are this test's own."""
    dev, own, shop, port = free_ports(4)
    nats = None if any("nats-server" in step.text for step in page) else own_nats(folder)
    elsewhere = {
        "noetl-stream dev\n": f"noetl-stream dev --gateway-port {dev}\n",
        "8080": dev,
        "8081": own,
        "8099": shop,
        "4222": port if nats is None else str(nats.port),
        "curl -s ": "curl -sS --fail-with-body ",
        "postgresql://noetl:secret@localhost:5432/noetl": own_postgres_dsn,
    }
    environment = {"HOME": str(folder), "PATH": f"{programs}:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
    with Walkthrough(folder, environment, elsewhere, patience_s=patience_s) as reader:
        try:
            if nats is not None:
                nats.start()
            for step in page:
                reader.do(step)
        finally:
            end_background(folder)
            if nats is not None:
                nats.end()

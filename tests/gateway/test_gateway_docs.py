"""What the pages about the gateway say is true."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.request import urlopen

import pytest

from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.gateway.http.problems import KINDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "http.md").read_text()
GUIDES = ROOT / "docs" / "how-to"
SHOWN = "http://127.0.0.1:8080"
NOETL = (sys.executable, "-m", "noetl_stream")
PATIENCE_S = 60


def rows(heading: str) -> list[str]:
    """The rows of the table under a heading, without its own."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_the_page_lists_every_route_with_its_role() -> None:
    assert rows("Routes") == [
        f"| `{route.method} {route.path}` | {route.role or 'none'} | {route.summary} |" for route in RESOURCES
    ]


def test_the_page_lists_every_kind_of_problem() -> None:
    assert rows("Errors") == [
        f"| `/problems/{kind.name}` | {kind.status} | {kind.meaning}. {kind.words} |".replace("?.", "?")
        for kind in KINDS.values()
    ]


def commands(guide: str) -> list[str]:
    """The shell blocks of a how-to guide."""
    return re.findall(r"^```bash\n(.*?)^```$", (GUIDES / guide).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.xdist_group("stack")
def test_a_stack_has_a_gateway_and_says_where(shared_home: Path) -> None:
    found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", (shared_home / "dev.log").read_text())
    assert found is not None
    with urlopen(f"{found[1]}/readyz", timeout=PATIENCE_S) as answer:
        assert json.load(answer) == {"ready": True, "missing": []}


@pytest.mark.xdist_group("stack")
def test_a_port_that_is_taken_is_one_clear_line(shared_home: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for command in (["gateway", "--port", port, "--home", shared_home], ["dev", "--gateway-port", port]):
            ended = subprocess.run(
                [*NOETL, *command],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                env={"NOETL_HOME": str(tmp_path)},
            )
            assert (ended.returncode, ended.stdout) == (2, "")
            assert f"{port}" in ended.stderr.splitlines()[-2]
    assert list(tmp_path.iterdir()) == [], "no stack was begun"


@pytest.fixture
def gateway(shared_home: Path) -> Iterator[str]:
    """The address of a gateway in a process of its own, which then ends in order."""
    command = [*NOETL, "gateway", "--port", "0", "--home", str(shared_home)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    (address,) = islice(filter(None, (re.search(r"listening on (\S+)", line) for line in process.stderr)), 1)
    yield address[1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0, process.stderr.read()
    process.stderr.close()


@pytest.mark.xdist_group("stack")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are for curl, which is not installed")
def test_the_examples_do_what_the_page_says(shared_home: Path, gateway: str) -> None:
    script = (
        "".join(commands("use-http.md"))
        .replace(SHOWN, gateway)
        .replace("~/.noetl", str(shared_home))
        .replace("curl -s", "curl -sS --fail-with-body -w '\\n'")
    )
    ended = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended
    for fact in ('"status":"waiting"', '"paid":250', '"rerun_of":"'):
        assert fact in ended.stdout, fact

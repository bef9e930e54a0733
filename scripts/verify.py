"""Runs every test with many more random cases, for hours: ``python scripts/verify.py --effort 50``.

Prints the row that records the run in ``docs/explanation/reliability.md``. The exit code is pytest's.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = (
    "Day",
    "Commit",
    "Effort",
    "Simulations",
    "Random executions",
    "Tests",
    "Failed",
    "Skipped",
    "Time",
    "Machine",
)


def output_of(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def commit() -> str:
    """The commit that is tested, with a `+` if files differ from it."""
    return output_of("git", "rev-parse", "--short", "HEAD") + ("+" if output_of("git", "status", "--porcelain") else "")


def seeds(effort: str) -> list[str]:
    """The numbers of simulations and random executions of the tests with this effort."""
    code = "from effort import *; print(f'{SIMULATIONS:,} {RANDOM_EXECUTIONS:,}')"
    environment = {**os.environ, "NOETL_TEST_EFFORT": effort, "PYTHONPATH": str(ROOT / "tests")}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return printed.stdout.split()


def counts(report: Path) -> list[str]:
    """The numbers of tests in a JUnit report that ran, failed and were skipped."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")}
    return [f"{total['tests']:,}", str(total["failures"] + total["errors"]), str(total["skipped"])]


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effort", required=True, metavar="N", help="a multiple of the random cases of `make test`")
    options, tests = parser.parse_known_args()
    tested, began = commit(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="noetl-verify-") as folder:
        report = Path(folder) / "report.xml"
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "3",
            "--dist",
            "loadgroup",
            "--no-loadscope-reorder",
            "-q",
            "-m",
            "",
            f"--junitxml={report}",
        ]
        environment = {**os.environ, "NOETL_TEST_EFFORT": options.effort}
        code = subprocess.run([*pytest, *tests], cwd=ROOT, env=environment, check=False).returncode
        found = counts(report)
    took = f"{(time.monotonic() - began) / 60:.0f} min"
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    print("For docs/explanation/reliability.md:", row(list(COLUMNS)), sep="\n")
    print(row([day, tested, f"×{options.effort}", *seeds(options.effort), *found, took, machine]))
    return code


if __name__ == "__main__":
    sys.exit(main())

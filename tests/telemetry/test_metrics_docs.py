"""The page about metrics names every metric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import noetl_stream
from metrics_of_code import metrics
from noetl_stream.operations.cluster import MOST_LETTERS, MOST_STUCK
from noetl_stream.server.server import SLOW_TURN_S
from noetl_stream.server.status_report import STUCK_S
from noetl_stream.telemetry import status_server as status
from noetl_stream.telemetry.measures import MAX_PATHS, OTHER

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(noetl_\w+)` \| (\w+) \|([^|]*)\| [^|]+ \|[^|]*\|$", re.MULTILINE)
SHOWN = re.compile(
    r"\bnoetl_(?:server|worker|gateway|nats|pool|partition|memory|executions)_[a-z_]*(?:total|bytes|seconds|behind)"
)
IDS = {"execution", "command", "process", "id", "worker", "server"}


def test_the_page_lists_each_with_its_type_and_labels() -> None:
    listed = {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in ROW.findall(PAGE)}
    assert listed == {name: (metric.kind, list(metric.labels)) for name, metric in metrics().items()}


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, metric in metrics().items():
        assert re.fullmatch(r"noetl(_[a-z]+)+", metric.name), name
        assert not metric.name.endswith("_total"), name
        assert metric.kind != "histogram" or metric.name.endswith("_seconds"), name
        assert not IDS.intersection(metric.labels), name
        assert metric.help.endswith("."), name


def test_other_pages_name_only_existing_metrics() -> None:
    names = set(metrics())
    for page in (ROOT / "docs").rglob("*.md"):
        assert set(SHOWN.findall(page.read_text())) <= names, page


def test_every_metric_is_moved_by_a_test() -> None:
    texts = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py") if file.name != Path(__file__).name]
    assert {name for name in metrics() if not any(re.search(rf"\b{name}(_count)?\b", text) for text in texts)} == set()


def test_the_lines_of_the_log_that_the_page_lists_are_written_somewhere() -> None:
    code = "\n".join(file.read_text() for file in Path(noetl_stream.__path__[0]).rglob("*.py"))
    listed = re.findall(r"^\| (`.*`) \| (?:info|warning|error) \|", PAGE, re.MULTILINE)
    messages = re.findall(r"`([^`]+)`", " ".join(listed))
    assert len(messages) > 15
    for message in messages:
        pieces = [piece for piece in re.split(r"…|\bN\b", message) if len(piece) > 3]
        assert pieces and all(piece.strip() in code for piece in pieces), message


def test_the_bounds_of_the_address_are_those_of_the_page() -> None:
    assert f"{status.MAX_CONNECTIONS} connections at once, and closes each after {status.LONGEST_S:g} s" in PAGE
    assert f"has not turned for {STUCK_S / 60:g} minutes" in PAGE
    assert f"a turn of {SLOW_TURN_S:g} s or more" in PAGE
    assert f"counted up to {MOST_STUCK}" in PAGE
    assert f"the newest {MOST_LETTERS} counted" in PAGE
    assert f"first {MAX_PATHS} it meets, and counts all others as `{OTHER}`" in PAGE

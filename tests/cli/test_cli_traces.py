"""The span of a command that starts an execution, as a collector sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_program import only_json
from noetl_stream.local.processes import choose_port
from otlp_collector import ENDPOINT, collecting
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")


def test_a_command_begins_the_trace_of_the_execution_that_it_starts(shared_home: Path, one_step: Path) -> None:
    start = ("execution", "start", one_step, "--home", shared_home, "-o", "json")
    with collecting() as collector:
        own = only_json(noetl(*start, **{ENDPOINT: collector.url}))
        caller = f"00-{'1' * 32}-{'2' * 16}-01"
        joined = only_json(noetl(*start, **{ENDPOINT: collector.url}, TRACEPARENT=caller))
        assert noetl("run", "missing.yaml", "--home", shared_home, **{ENDPOINT: collector.url}).returncode == 2
        left_out = only_json(noetl(*start, **{ENDPOINT: collector.url}, OTEL_TRACES_SAMPLER="always_off"))
    first, second, failed = collector.spans
    assert {first.name, second.name} == {"noetl-stream execution start"}
    assert (first.service, first.trace_id, first.parent_id) == ("noetl-cli", own["trace_id"], "")
    assert (joined["trace_id"], second.trace_id, second.parent_id) == ("1" * 32, "1" * 32, "2" * 16)
    assert (failed.name, failed.error) == ("noetl-stream run", "UsageError")
    assert len(left_out["trace_id"]) == 32


def test_an_unreachable_collector_is_reported_in_one_line(shared_home: Path, one_step: Path) -> None:
    away = {ENDPOINT: f"http://127.0.0.1:{choose_port()}"}
    started = noetl("execution", "start", one_step, "--home", shared_home, **away)
    assert started.returncode == 0
    assert started.stderr == "the span of this command was not exported: the collector does not take it\n"


def test_the_settings_of_another_home_are_not_read_for_a_span(
    shared_home: Path, one_step: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.env"
    other.write_text("NOETL_ACCESS_KEY=no-key\n")
    started = noetl("execution", "start", one_step, "--home", shared_home, NOETL_SETTINGS=str(other))
    assert (started.returncode, started.stderr) == (0, "")

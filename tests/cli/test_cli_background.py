"""``run`` target nothing runs yet: it starts what it needs, and that goes when nobody needs it."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import asyncpg
import psutil
import pytest

from cli_program import PATIENCE_S, all_gone, noetl, only_json, processes_of, start
from effort import first_in_gate
from noetl_stream.errors import Unreachable
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.protocol.nats_permissions import ADMIN
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import connected_to, open_stack, ports_of_command, prepare_once

pytestmark = pytest.mark.xdist_group("own_stacks")

TINY = ["--executions", "5", "--steps", "2", "--latency-runs", "3", "--fan-out", "4", "--repeat", "2", "--slots", "8"]


def test_a_run_on_a_new_home_leaves_nothing_running(fresh_home: Path, one_step: Path) -> None:
    found = noetl("run", one_step, "--home", fresh_home, "--timeout", "40", "-o", "json")
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    assert only_json(found)["status"] == "completed"
    assert all_gone(processes_of(fresh_home))
    log = (fresh_home / "background.log").read_text()
    assert "took over 32 partitions" in log
    assert "Traceback" not in log
    assert "ERROR" not in log
    again = noetl("run", one_step, "--home", fresh_home, "--timeout", "40", "-o", "json")
    assert again.returncode == 0, again.stderr + (fresh_home / "background.log").read_text()
    assert all_gone(processes_of(fresh_home))


def test_the_preparations_of_run_are_undone_when_the_playbook_is_refused(fresh_home: Path, tmp_path: Path) -> None:
    playbook = tmp_path / "refused.yaml"
    os.mkfifo(playbook)
    run = start("run", playbook, "--home", fresh_home)
    with playbook.open("w") as writer:  # once the run reads it
        assert (fresh_home / "start.lock").exists()
        begun = psutil.Process(run.pid).children(recursive=True)
        writer.write("kind: Playbook\n")
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 2, errors
    assert all_gone(begun)
    assert processes_of(fresh_home) == []
    assert not fresh_home.exists()


def test_a_log_that_cannot_be_written_is_named(fresh_home: Path, one_step: Path) -> None:
    (fresh_home / "background.log").mkdir(parents=True)
    found = noetl("run", one_step, "--home", fresh_home)
    assert found.returncode != 0
    assert found.stderr.splitlines() == [
        f"starting NATS and Postgres in {fresh_home}",
        f"noetl-stream: cannot start the background server: {fresh_home / 'background.log'}: Is a directory",
    ]


@pytest.mark.verify
def test_two_runs_at_once_share_a_new_home_and_both_leave_it(fresh_home: Path, one_step: Path) -> None:
    runs = [start("run", one_step, "--home", fresh_home, "--timeout", "40") for _ in range(2)]
    output = [run.communicate(timeout=PATIENCE_S) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], output
    assert all_gone(processes_of(fresh_home))


@pytest.mark.verify
def test_an_interrupted_run_continues_without_its_command_when_nats_is_killed(own_home: Path, waiting: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gate:
        gate.settimeout(40)
        run = start("run", waiting, "--set", f"gate={gate.getsockname()[1]}", "--home", own_home)
        line, _ = gate.accept()
        run.send_signal(signal.SIGINT)
        _, output = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 130
        [nats] = [found for found in processes_of(own_home) if found.name() == "nats-server"]
        nats.kill()
        with line:
            line.sendall(b"done")
    execution_id = output.split("execution get ")[1].split()[0]
    assert all_gone(processes_of(own_home))
    described = only_json(noetl("execution", "get", execution_id, "--home", own_home, "-o", "json"))
    assert (described["status"], described["result"]) == ("completed", "done")


@pytest.mark.verify
def test_a_small_benchmark_prints_its_figures_and_ends_its_processes(own_home: Path) -> None:
    found = noetl("bench", *TINY, "--home", own_home, "-o", "json")
    assert found.returncode == 0, found.stderr
    figures = only_json(found)
    assert len(figures["steps_per_s"]) == len(figures["executions_per_s"]) == len(figures["fan_out_s"]) == 2
    assert set(figures["latency_ms"]) == {"p50", "p99"}
    groups = {"server", "worker", "client", "nats", "postgres"}
    assert set(figures["cpu_us_per_step"]) == set(figures["memory_mib"]) == groups
    assert processes_of(own_home) == []


def roles_of(process: psutil.Process) -> list[psutil.Process]:
    """Its server and its worker."""
    return [child for child in process.children() if "--end-with-parent" in words_of(child)]


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; empty if it is gone by now."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


@pytest.mark.verify
@pytest.mark.parametrize("number", first_in_gate([signal.SIGTERM, signal.SIGINT]))
def test_an_interrupted_benchmark_ends_its_processes(own_home: Path, number: signal.Signals) -> None:
    bench = start("bench", "--executions", "2000", "--home", own_home)
    process = psutil.Process(bench.pid)
    while len(roles_of(process)) < 2:
        assert bench.poll() is None
    started = processes_of(own_home) + process.children(recursive=True)
    bench.send_signal(number)
    stdout, stderr = bench.communicate(timeout=PATIENCE_S)
    assert (bench.returncode, stdout) == (130, "")
    assert "Traceback" not in stderr
    assert all_gone(started, 10)
    assert processes_of(own_home) == []


async def test_an_embedded_stack_is_prepared_once_and_again_when_something_is_missing(own_home: Path) -> None:
    settings = Settings(home_folder=own_home)
    with open_stack(settings) as stack:
        await prepare_once(stack)
        owner = await asyncpg.connect(stack.endpoint_of(ADMIN).postgres_dsn)
        await owner.execute("drop schema noetl cascade")
        await prepare_once(stack)
        assert await owner.fetchval("select to_regclass('noetl.event')") is None
        async with ports_of_command(stack, "test", publishes=True) as ports:
            assert await ports.store.now_ms() > 0
        assert await owner.fetchval("select to_regclass('noetl.event')") is not None
        await owner.execute("drop schema noetl cascade")
        await owner.close()
        (own_home / "prepared").write_text("by another version")
        await prepare_once(stack)
        async with connected_to(stack, "test") as connected:
            await connected.store.verify()


async def test_a_command_that_only_reads_postgres_works_while_nats_is_away(own_home: Path) -> None:
    with open_stack(Settings(home_folder=own_home)) as stack:
        await prepare_once(stack)
        async with ports_of_command(stack, "test", publishes=False) as ports:
            assert stack.embedded is not None
            nats = psutil.Process(stack.embedded.pids()["nats"])
            nats.kill()
            assert all_gone([nats])
            assert len(await ports.store.read_partitions()) == PARTITIONS
            with pytest.raises(Unreachable, match="cannot reach NATS"):
                await ports.bus.ask("noetl.ping", b"", 1)


def test_a_child_whose_parent_ends_before_it_knows_its_stack_ends() -> None:
    assert noetl("worker", "--end-with-parent").returncode == 0

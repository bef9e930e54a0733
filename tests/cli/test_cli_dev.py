"""``dev``: everything is up, stays up, and goes."""

from __future__ import annotations

import queue
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cli_program import PATIENCE_S, all_gone, noetl, processes_of, start

pytestmark = pytest.mark.xdist_group("own_stacks")


class Dev:
    """A `dev` of this test's own, and what it has said."""

    def __init__(self, home: Path) -> None:
        self.home = home
        # Its children answer at no status address: they cannot share one. At this one none could.
        self.process = start("dev", "--home", home, NOETL_STATUS_ADDRESS="nowhere.invalid:9464")
        self.printed = [self.next_line() for _ in range(6)]
        self._logged: queue.Queue[str] = queue.Queue()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def next_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def wait_for_log(self, text: str) -> None:
        """Returns when a line with ``text`` is logged."""
        while text not in self._logged.get(timeout=PATIENCE_S):
            pass

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self._listening.join(PATIENCE_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._logged.put(line)


@pytest.fixture
def dev(own_home: Path) -> Iterator[Dev]:
    started = Dev(own_home)
    yield started
    if started.process.poll() is None:
        started.end(signal.SIGKILL)
    started.close()


def roles_of(dev: Dev) -> dict[str, psutil.Process]:
    children = psutil.Process(dev.process.pid).children()
    return {role: child for child in children for role in ("server", "worker") if role in child.cmdline()}


def server_process(home: Path, program: str) -> psutil.Process:
    """The embedded server itself; what a Postgres forks has other words on its command line."""
    return next(found for found in processes_of(home) if Path(found.cmdline()[0]).name == program)


@pytest.mark.verify
def test_dev_prints_its_addresses_and_restarts_dead_roles(dev: Dev, one_step: Path) -> None:
    assert dev.printed[0] == "noetl-stream is running. Press Ctrl-C to stop."
    assert dev.printed[1].split() == ["home", str(dev.home)]
    assert dev.printed[2].split()[1].startswith("nats://")
    assert dev.printed[3].split()[1].startswith("postgresql://")
    assert [line for line in dev.printed if "@" in line] == [], "no address has a password"
    assert dev.printed[4].strip().startswith("grants    every playbook may use every credential")
    assert dev.printed[5].endswith(f"noetl-stream run FILE --home {dev.home}")
    roles = roles_of(dev)
    assert set(roles) == {"server", "worker"}
    for role, process in roles.items():
        process.kill()
        dev.wait_for_log(f"{role} 1 exited with code -9: restarting")
    for name, program in (("nats", "nats-server"), ("postgres", "postgres")):
        server_process(dev.home, program).kill()
        dev.wait_for_log(f"{name} had stopped: restarted")
    found = noetl("run", one_step, "--home", dev.home, "--timeout", "50")
    assert found.returncode == 0, found.stderr
    everything = processes_of(dev.home) + psutil.Process(dev.process.pid).children(recursive=True)
    assert dev.end() == 0
    assert all_gone(everything, 10)
    assert processes_of(dev.home) == []


@pytest.mark.verify
def test_its_roles_end_with_it_even_when_it_is_killed(dev: Dev) -> None:
    roles = list(roles_of(dev).values())
    assert len(roles) == 2
    dev.end(signal.SIGKILL)
    assert all_gone(roles)
    left = processes_of(dev.home)
    assert {process.name() for process in left} == {"nats-server", "postgres"}
    assert noetl("execution", "list", "--home", dev.home).returncode == 0
    assert all_gone(left), "the next command is their last user and stops them"


@pytest.mark.verify
def test_a_closed_terminal_ends_dev_in_order(dev: Dev) -> None:
    everything = processes_of(dev.home) + psutil.Process(dev.process.pid).children(recursive=True)
    assert dev.end(signal.SIGHUP) == 0
    assert all_gone(everything, 10)


@pytest.mark.verify
def test_a_background_process_ends_when_dev_starts(own_home: Path, waiting: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gate:
        gate.settimeout(PATIENCE_S)
        run = start("run", waiting, "--set", f"gate={gate.getsockname()[1]}", "--home", own_home)
        line, _ = gate.accept()
        [background] = [found for found in processes_of(own_home) if "background" in found.cmdline()]
        dev = Dev(own_home)
        with line:
            line.sendall(b"done")
    assert all_gone([background])
    output = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, dev.process.poll()) == (0, None), output
    assert dev.end() == 0
    dev.close()

"""Follows a page of the documents as a reader does: writes its files, runs its commands in one shell, compares output.

A block with a title is a file. A ``bash`` block is run; the ``text`` block right after it is its output, where ``…``
stands for anything. Comments above a block say what a page shows in its words:

- ``<!-- exit: 1 -->``: one of its commands ends with this code.
- ``<!-- terminal -->``: it is left running, as in a terminal of its own; the same block again takes its place.
- ``<!-- installation -->``: it installs the program, which most walks have already and the others do first.
- ``<!-- empty folder -->``: it is for those who have no clone.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^\n]+?) -->\n)?```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
TITLE = re.compile(r'^\w+ title="([^"]+)"$')
END = re.compile(r"^@@@ (\d+)$")
PATIENCE_S = 60


@dataclass(frozen=True)
class Step:
    """A block of a page: the file that it is, or a command with the output that the page shows."""

    text: str
    file: str | None = None
    exit_code: int = 0
    stays: bool = False
    installs: bool = False
    is_for_empty_folder: bool = False
    is_text: bool = False
    shown: str = ""


def steps(page: str, typed: Collection[str] = ()) -> list[Step]:
    """The files and commands of a page, in order; of ``text`` blocks those that begin with one of these lines."""
    found: list[Step] = []
    end = 0
    for block in BLOCK.finditer(page):
        info, text, note = block["info"], block["text"], block["note"] or ""
        if title := TITLE.match(info):
            found.append(Step(text, file=title[1]))
        elif info == "bash" or (info == "text" and text.partition("\n")[0] in typed):
            code = re.fullmatch(r"exit: (\d+)", note)
            exit_code = int(code[1]) if code else 0
            found.append(
                Step(
                    text,
                    None,
                    exit_code,
                    stays=note == "terminal",
                    installs=note == "installation",
                    is_for_empty_folder=note == "empty folder",
                    is_text=info == "text",
                )
            )
        elif info == "text" and found and not page[end : block.start()].strip():
            found[-1] = replace(found[-1], shown=text)
        end = block.end()
    return found


class Walkthrough:
    """A reader's folder and shell. Use it in a ``with`` statement: it ends what was left running.

    Args:
        environment: The whole environment of the commands.
        elsewhere: Addresses that the page shows, and where they are in this walk.
        patience_s: How long a block may take.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        elsewhere: Mapping[str, str],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._elsewhere = dict(elsewhere)
        self._patience_s = patience_s
        self._number = 0
        self._ending = ExitStack()
        self._terminals: dict[str, Callable[[], None]] = {}

    def __enter__(self) -> Walkthrough:
        self._shell, _ = self._start(["bash", "-u"])
        self._type("set -o pipefail; trap 'failed=$?' ERR")
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def do(self, step: Step) -> None:
        """Writes the file or runs the command of a block, and compares the output with the page."""
        text = self._here(step.text)
        if step.file is not None:
            file = self._folder / step.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif step.stays:
            self._leave_running(text, step.shown)
        else:
            code, output = self._run(text)
            assert code == step.exit_code, f"{text}exited with {code}:\n{output}"
            assert_shown(self._here(step.shown), output)

    def _here(self, text: str) -> str:
        for shown, here in self._elsewhere.items():
            text = text.replace(shown, here)
        return text

    def _run(self, text: str) -> tuple[int, str]:
        self._number += 1
        script = self._folder / f".block{self._number}.sh"
        script.write_text(text)
        self._type(f"failed=0; . '{script}' </dev/null; echo; echo @@@ $failed")
        printed = ""
        for line in lines_of(self._shell, self._patience_s):
            if end := END.match(line):
                return int(end[1]), printed
            printed += line
        raise AssertionError(f"{text}did not end:\n{printed}")

    def _leave_running(self, text: str, shown: str) -> None:
        """Starts the command and waits until it has printed what the page shows."""
        if former := self._terminals.get(text):
            former()
        process, self._terminals[text] = self._start(["bash", "-c", text])
        expected = [line_pattern(self._here(line)) for line in shown.splitlines()]
        printed = ""
        for line in lines_of(process, self._patience_s) if expected else ():
            printed += line
            if expected[0].fullmatch(spaced(line)):
                expected.pop(0)
            if not expected:
                return
        assert not expected, f"{text}did not say {shown!r}:\n{printed}"

    def _start(self, command: list[str]) -> tuple[subprocess.Popen[str], Callable[[], None]]:
        """The process, and what ends it."""
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

        def end() -> None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            if process.stdout is not None and not process.stdout.closed:
                process.communicate(timeout=PATIENCE_S)

        self._ending.callback(end)
        return process, end

    def _type(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\n")
        self._shell.stdin.flush()


def free_ports(number: int) -> list[str]:
    """Ports that nothing listens on."""
    with ExitStack() as taken:
        servers = [taken.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [str(server.getsockname()[1]) for server in servers]


def lines_of(process: subprocess.Popen[str], patience_s: float) -> Iterator[str]:
    """The output of a process, which is killed if it takes too long."""
    assert process.stdout is not None
    watchdog = threading.Timer(patience_s, os.killpg, [process.pid, signal.SIGKILL])
    watchdog.start()
    try:
        yield from iter(process.stdout.readline, "")
    finally:
        watchdog.cancel()


def assert_shown(shown: str, output: str) -> None:
    """Fails unless the lines that a page shows are in the output, in this order."""
    lines = iter([spaced(line) for line in output.splitlines()])
    for expected in filter(None, map(str.strip, shown.splitlines())):
        pattern = line_pattern(expected)
        assert any(pattern.fullmatch(line) for line in lines), f"no line {expected!r} (any more) in:\n{output}"


def line_pattern(expected: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, spaced(expected).split("…"))))


def spaced(line: str) -> str:
    """The line with single spaces."""
    return " ".join(line.split())


def end_background(home: Path) -> None:
    """Ends what `run` has started on the reader's own servers while they are still there."""
    started = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        about = process.info
        if "background" in (about["cmdline"] or []) and (about["environ"] or {}).get("HOME") == str(home):
            process.terminate()
            started.append(process)
    _, alive = psutil.wait_procs(started, PATIENCE_S)
    assert alive == []

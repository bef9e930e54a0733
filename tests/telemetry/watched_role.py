"""A role that runs as a process with a status address, and whose log the test reads."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from cli_program import NOETL, PATIENCE_S, environment
from measured import samples_in
from noetl_testkit.waiting import until


@dataclass
class Watched:
    """``url`` is its status address, which it logs."""

    process: subprocess.Popen[str]
    lines: SimpleQueue[str] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        Thread(target=self._read, daemon=True).start()
        (found,) = re.findall(r"http://\S+", self.until("status at")["message"])
        self.url = found

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.put(line)

    def until(self, message: str) -> dict[str, Any]:
        """The next record with such a message."""
        while True:
            record: dict[str, Any] = json.loads(self.lines.get(timeout=PATIENCE_S))
            if message in record["message"]:
                return record

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"{self.url}{path}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refused:
            return refused.code, refused.read().decode()

    def metrics(self) -> dict[str, float]:
        return samples_in(self.get("/metrics")[1])

    async def is_ready(self) -> None:
        await until(lambda: self.get("/readyz")[0] == 200)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0


@contextmanager
def watched(*words: str, **settings: str) -> Iterator[Watched]:
    """A role, by the words of its command and its environment; it ends with the block."""
    process = subprocess.Popen(
        [*NOETL, *words, "--status-address", "127.0.0.1:0"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(NOETL_LOG_FORMAT="json", **settings),
    )
    try:
        yield Watched(process)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)

"""The embedded stack of this machine, in a process that ends with this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from noetl_stream_client.errors import LocalStackError
from noetl_stream_client.gateways import Gateway, home_of, local_gateways

START_S: Final = 120.0
"""The time that a stack may take to start: the first start of a home makes its database."""

STOP_S: Final = 60.0
SHOWN_LINES: Final = 5
LISTENING: Final = "  gateway "


class LocalStack:
    """The running stack of the home, or a new one that runs until it is closed or this process ends.

    Args:
        home: Its folder; else NOETL_HOME, else ``~/.noetl``.

    Raises:
        LocalStackError: it is not installed, or does not start.
    """

    def __init__(self, home: str | Path | None) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._last: deque[str] = deque(maxlen=SHOWN_LINES)
        folder = home_of(dict(os.environ)) if home is None else Path(home).expanduser().absolute()
        if folder is None:
            raise LocalStackError("neither NOETL_HOME nor HOME is set", hint="Client.local(home=…) names a folder")
        running = local_gateways(folder)
        self.gateway: Final[Gateway] = running[0] if running else self._started(folder)

    def close(self) -> None:
        """Stops the stack if it was started here."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        try:
            process.stdin.close()  # it ends with its standard input
            process.wait(STOP_S)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()

    def _started(self, home: Path) -> Gateway:
        if find_spec("noetl_stream") is None:
            raise LocalStackError("noetl-stream is not installed here", hint="pip install noetl-stream")
        command = [sys.executable, "-m", "noetl_stream", "dev", "--end-with-parent", "--home", str(home)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(  # no Ctrl-C of this process's terminal reaches it
            command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):  # it has ended: what it said is told below
            process.stdin.write(json.dumps(dict(os.environ)) + "\n")
            process.stdin.flush()
        ready = threading.Event()
        threading.Thread(target=self._read, args=(process, ready), name="noetl-stream dev", daemon=True).start()
        ready.wait(START_S)
        running = local_gateways(home) if process.poll() is None else []
        if not running:
            self.close()
            said = "; ".join(self._last) or "it said nothing"
            raise LocalStackError(f"the embedded stack in {home} did not start: {said}")
        return running[0]

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        """Reads the output of the stack, so that it never blocks."""
        assert process.stdout is not None
        for line in process.stdout:
            self._last.append(line.strip())
            if line.startswith(LISTENING):
                ready.set()
        ready.set()

"""A process that has the program's libraries loaded and forks one process for each command.

``python warm_server.py ADDRESS`` listens on a Unix socket, prints ``ready``, and ends with its standard input. A client
sends its three standard streams with a line of JSON ``[words, folder, environment]``. From then on it sends signals, a
byte for each, and receives one byte, the exit code; or nothing, if the command was killed.
"""

from __future__ import annotations

import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
import traceback
from importlib import import_module
from typing import Any

import noetl_stream

LOADED_PACKAGES = ("adapters/nats", "cli", "client", "engine", "local", "playbook", "tools")
LOADED_MODULES = ("noetl_stream.hosting.role_processes", "noetl_stream.wiring.role_assembly", "nkeys", "uvloop")
"""What is imported before any command, among it what most commands import only once they need it."""

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: warm, path: tests/warm}
workload: {items: [1]}
workflow:
  - step: begin
    loop: {in: "{{ workload.items }}", iterator: item}
    tool: {kind: noop, args: {item: "{{ iter.item }}"}}
    next: {arcs: [{step: end, when: "{{ ctx.on is not defined }}"}]}
  - step: end
    tool: [{name: one, kind: python, code: "result = 1"}, {name: two, kind: wait, for_s: 1}]
"""
"""Checked before any command: by the first check the models of the language are built, for more than a check takes."""


def main(address: str) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    print("ready", flush=True)
    for package in LOADED_PACKAGES:
        prefix = f"noetl_stream.{package.replace('/', '.')}."
        for module in pkgutil.walk_packages([f"{noetl_stream.__path__[0]}/{package}"], prefix):
            import_module(module.name)
    for name in LOADED_MODULES:
        import_module(name)
    _check()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the commands
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    while not any(key.fd == 0 for key, _ in selector.select()):
        client, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            selector.close()
            listening.close()
            _run(client)
        client.close()


def _check() -> None:
    from noetl_stream.playbook.compile.compiler import check
    from noetl_stream.tools.registry import kinds_of, load_tools

    checked = check(PLAYBOOK, kinds_of(load_tools()))
    assert checked.plan is not None, checked.diagnostics


def _run(client: socket.socket) -> None:
    """Runs the client's command in this process, which ends with it."""
    (words, folder, environment), streams = _request(client)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.stdin = os.fdopen(0, closefd=False)
    threading.Thread(target=_pass_signals_on, args=(client,), daemon=True).start()
    from noetl_stream.cli.main import main as program

    code: Any = 1
    try:
        program(words)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    client.send(bytes([code]))
    os._exit(code)


def _request(client: socket.socket) -> tuple[Any, list[int]]:
    text, streams, _, _ = socket.recv_fds(client, 65536, 3)
    while not text.endswith(b"\n"):
        text += client.recv(65536)
    return json.loads(text), streams


def _pass_signals_on(client: socket.socket) -> None:
    while number := client.recv(1):
        os.kill(os.getpid(), number[0])


if __name__ == "__main__":
    main(sys.argv[1])

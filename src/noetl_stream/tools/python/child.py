"""A child process of ``kind: python``, which a zygote forks (LANGUAGE §12 *python*).

The process runs no code of a playbook itself. It is a template: for each job it forks a process, which begins in the
same state as every other one, whatever jobs before it have changed. The process is ready before a job comes. It gets a
connection of its own to the worker: the template sends the worker's end with the exit code of the process before. While
it runs a job, the worker may send code that was compiled, with its file name, which the template compiles for those to
come; or no code and a function, whose module those to come import before their job is there, or an empty text: none.

A frame on it is a big-endian length of four bytes, then JSON of that length. The request is a job with
``max_result_bytes`` (see :func:`~noetl_stream.tools.python.job.run_job`), and its ``traceparent`` if it belongs to a
trace; the response is ``[result, null]`` or ``[null, {kind, message, exception_type, traceback}]``, after any notes
(:mod:`~noetl_stream.tools.python.line`). After an empty frame, many jobs share the process (see
:mod:`~noetl_stream.tools.python.event_loop`).
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import io
import os
import resource
import socket
import sys
import time
from importlib.machinery import PathFinder
from select import PIPE_BUF
from typing import Any, Final, NoReturn

from noetl_stream.tools.children.frames import HEADER_BYTES, add_length, take_frames
from noetl_stream.tools.children.landlock import landlock_version, stay_apart
from noetl_stream.tools.children.linux import die_with_parent
from noetl_stream.tools.children.own_limits import OwnLimits, cpu_bounds
from noetl_stream.tools.children.process_tree import ChildrenList, kill_adopted
from noetl_stream.tools.children.view import FILES_VARIABLE, folders_in_memory
from noetl_stream.tools.convert import decode_json, encode_json
from noetl_stream.tools.python.ahead import (
    CompiledModules,
    close_outputs,
    import_ahead,
    open_outputs,
    use_ahead,
)
from noetl_stream.tools.python.annotations import parameters_of
from noetl_stream.tools.python.code_compiler import compile_program
from noetl_stream.tools.python.job import JobFailed, run_job, show_log_records
from noetl_stream.tools.python.line import LINE, JobFrames
from noetl_stream.tools.python.output import error_answer, result_answer, text_output
from noetl_stream.tools.scratch.task_files import use_folders

TRACE_VARIABLE: Final = "TRACEPARENT"
MAX_REMEMBERED_BYTES: Final = 32 * 1024
"""The longest code that a template compiles, in bytes. The channel takes that much at once while it is empty."""
_READ_BYTES: Final = 64 * 1024
_PAUSE_S: Final = 0.01
PRELOADED: Final = (
    *("base64", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "enum", "functools", "hashlib"),
    *("hmac", "io", "itertools", "json", "math", "operator", "os", "pathlib", "re", "string", "textwrap", "time"),
    *("typing", "urllib.parse", "zoneinfo"),
)
"""Modules that much code imports, so that jobs need not load them. They start no thread, and do nothing in a new
process, as ``random``, ``logging`` and ``threading`` do.
"""
_FIRST_JOB: Final = (
    b'{"code":"return args","place":"","args":{"n":1},"libs":{},"scope":{},"execution_id":"","idempotency_key":"",'
    b'"max_result_bytes":100}'
)
"""A job that each process runs first, so that the pages of memory that every job writes to are its own."""
_FIRST_CALL: Final = encode_json({**decode_json(_FIRST_JOB), "function": f"{__name__}:_first", "context": {}})
"""The same, for calls of functions."""


_WARMING: Final = "colorsys:rgb_to_hsv"
"""A small function of the standard library, imported in the same way as the functions of jobs."""
_WARM_RUNS: Final = 20
"""The number of warm-up runs before the first fork. Python specializes code in its first runs; each forked process
would copy the pages that this changes.
"""


def _first(n: int) -> int:
    return n


_FORK_HOOKS: Final[list[dict[str, Any]]] = []
"""The fork hooks of ``threading`` and ``logging``, for processes that jobs fork. They renew locks that other threads
have held. A template has no other threads, and running them costs each process of a job a tenth of its CPU time.
"""


def prepare() -> None:
    """Makes objects in the zygote that each process would make again, also those of Python's first use."""
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: _FORK_HOOKS.append(hooks)
    try:
        show_log_records()
    finally:
        os.register_at_fork = register
    modules = CompiledModules()
    open_outputs()
    for _ in range(_WARM_RUNS):
        _warm(modules)
    close_outputs()


def _warm(modules: CompiledModules) -> None:
    parameters_of.cache_clear()
    for job in (_FIRST_JOB, _FIRST_CALL):
        mine, other = socket.socketpair()
        with mine, other:
            other.sendall(add_length(job))
            _serve_one(mine, text_output())
    modules.compile(_WARMING)
    import_ahead(_WARMING, modules)
    use_ahead(_WARMING)
    sys.modules.pop(_WARMING.partition(":")[0], None)


def serve(channel_fd: int, cpu_s: int) -> None:
    """Forks processes for jobs, one ahead, until the worker closes the channel. One job runs at a time.

    Each may use ``cpu_s`` seconds of CPU time. Processes and files that a job leaves are removed before the next one
    begins; if one cannot be removed, this process ends, and another takes its place.
    """
    channel, folders = socket.socket(fileno=channel_fd), _own_folders()
    use_folders(os.getcwd(), os.environ.get(FILES_VARIABLE, ""))  # noqa: PTH109
    limits, children, landlock, most = OwnLimits(), ChildrenList(), landlock_version(), cpu_bounds(cpu_s)
    faulthandler.enable(file=2, all_threads=False)
    sys.stdout = sys.stderr = output = text_output()
    exit_code, received, functions, modules = 0, bytearray(), [""], CompiledModules()
    sys.meta_path.insert(sys.meta_path.index(PathFinder), modules)
    open_outputs()

    def fork() -> tuple[int, socket.socket, int]:
        ours, theirs = socket.socketpair()
        gate, opener = os.pipe()
        with theirs:
            process_id = os.fork()
            if process_id == 0:
                os.close(opener)
                for one in (channel, ours, children):
                    one.close()
                stay_apart(landlock)  # it cannot stop this process or the next one either
                _run(theirs, output, most, gate, modules, _FIRST_CALL if functions[-1] else _FIRST_JOB)
        os.close(gate)
        return process_id, ours, opener

    process_id, connection, opener = fork()
    while _remember(channel, received, functions):
        with connection:
            if functions[-1]:
                modules.compile(functions[-1])
            _open_gate(opener, functions[-1])
            send_next(channel, exit_code, connection)
        next_id, connection, opener = fork()  # while the job runs, or waits
        exit_code = os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])
        limits.restore()
        while not kill_adopted(children, own=(next_id,)):
            os.waitpid(-1, 0)
        for folder, kept in folders.items():
            _empty(folder, kept)
        process_id = next_id


def _open_gate(opener: int, function: str) -> None:
    """Tells the next process, which no earlier job can affect any more, the function it will probably call."""
    with contextlib.suppress(BrokenPipeError):  # it has died, which the worker finds
        os.write(opener, function.encode())
    os.close(opener)


def send_next(channel: socket.socket, exit_code: int, connection: socket.socket) -> None:
    """Sends the worker an exit code and the connection to the next process.

    The kernel counts the descriptors that are on their way for all processes of a user, and allows as many as this one
    may have open: it waits for those of others. The worker kills it if that takes too long.
    """
    message = exit_code.to_bytes(HEADER_BYTES, "big", signed=True)
    while True:
        try:
            socket.send_fds(channel, [message], [connection.fileno()])
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _remember(channel: socket.socket, received: bytearray, functions: list[str]) -> bool:
    """Compiles a job's code for later ones, or adds its function to ``functions``; returns if the channel is open."""
    try:
        data = channel.recv(_READ_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    received += data
    for frame in take_frames(received):
        source, place = decode_json(frame)
        if source:
            compile_program(source, place)
        else:
            functions[:] = [place if len(place.encode()) <= PIPE_BUF else ""]
    return bool(data)


def _own_folders() -> dict[str, set[str]]:
    """Returns the folders of this child alone, with the entries that must stay in them."""
    return {folder: set(os.listdir(folder)) for folder in (os.getcwd(), *folders_in_memory())}  # noqa: PTH109, PTH208


def _empty(folder: str, kept: set[str]) -> None:
    device = os.lstat(folder).st_dev
    for entry in os.scandir(folder):
        if entry.name not in kept:
            _remove(entry, device)


def _remove(entry: os.DirEntry[str], device: int) -> None:
    """Removes a file or a whole folder, but nothing of another file system, which may be mounted in it."""
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry)  # noqa: PTH108
    elif entry.stat(follow_symlinks=False).st_dev == device:
        for below in os.scandir(entry):
            _remove(below, device)
        os.rmdir(entry)  # noqa: PTH106


def _run(
    connection: socket.socket,
    output: io.TextIOWrapper,
    most: tuple[int, int],
    gate: int,
    modules: CompiledModules,
    first: bytes,
) -> NoReturn:
    """Runs a job in the process forked for it, and exits without Python's cleanup.

    Args:
        most: The soft and hard limits of CPU time, in seconds.
        first: A job to run first, as a warm-up.
        gate: The pipe with the name of the function that the job will probably call; empty if unknown.
    """
    try:
        die_with_parent()
        try:  # noqa: SIM105  # a context manager copies more pages
            resource.setrlimit(resource.RLIMIT_CPU, most)
        except ValueError:  # macOS refuses some values
            pass
        for hooks in _FORK_HOOKS:
            os.register_at_fork(**hooks)
        mine, other = socket.socketpair()
        with mine, other:
            other.sendall(add_length(first))
            _serve_one(mine, output)
        told = os.read(gate, PIPE_BUF)
        os.close(gate)
        if told:
            import_ahead(told.decode(), modules)
        close_outputs()
        _serve_one(connection, output)
    finally:
        os._exit(0)


def _serve_one(connection: socket.socket, output: io.TextIOWrapper) -> None:
    received = bytearray()
    frame = _receive(connection, received)
    if frame:
        frames = JobFrames(connection)
        LINE.set(frames.line)
        answer = _answer(frame)
        try:  # noqa: SIM105  # a context manager copies more pages
            output.flush()
        except (OSError, ValueError):  # the code has closed it
            pass
        frames.send(answer)
    elif frame is not None:
        from noetl_stream.tools.python.event_loop import serve_shared  # asyncio is large

        serve_shared(connection, received)


def _answer(frame: bytes) -> bytes:
    job = decode_json(frame)
    if (traceparent := job.get("traceparent")) is not None:
        os.environ[TRACE_VARIABLE] = traceparent
    try:
        return result_answer(run_job(job), job["max_result_bytes"])
    except JobFailed as failed:
        return error_answer(failed)


def _receive(connection: socket.socket, received: bytearray) -> bytes | None:
    """Receives a frame; ``None`` if the worker has closed the connection. Bytes after it stay in ``received``."""
    while data := connection.recv(_READ_BYTES):
        received += data
        for frame in take_frames(received):
            return frame
    return None

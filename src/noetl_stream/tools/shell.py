"""``kind: shell``: one command, in its own process group that ends with the task (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, field_validator, model_validator

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.children import ChildSettings
from noetl_stream.settings.tools import DEFAULT_MAX_SCRATCH_BYTES, ToolSettings
from noetl_stream.tools.cgroups import memory_words
from noetl_stream.tools.child_process import CapturedOutput, Heard, TreeKiller
from noetl_stream.tools.children.launcher import Launcher
from noetl_stream.tools.children.messages import ANSWER_S, ExternalProgram
from noetl_stream.tools.children.view import FILES
from noetl_stream.tools.contract import OWN_TROUBLE, ToolCall, ToolFailure, ToolResult, Write, beginning, ignore_output
from noetl_stream.tools.convert import NotJson, to_json
from noetl_stream.tools.inputs import Inputs, Knobs, invalid_input, validated
from noetl_stream.tools.proxy.egress_proxy import EgressProxy
from noetl_stream.tools.scratch.command_files import (
    MAX_PATTERNS,
    checked_name,
    checked_pattern,
    collect_files,
    place_files,
)
from noetl_stream.tools.scratch.scratch import MAX_FILES, ScratchFolders

MAX_OUTPUT_BYTES: Final = 1024 * 1024
KEY_VARIABLE: Final = "NOETL_IDEMPOTENCY_KEY"
TRACE_VARIABLE: Final = "TRACEPARENT"
_SIGNAL_EXIT_CODE: Final = 128
"""The number added to that of the signal that ended a command, as in shells."""
_SHOWN_CHARACTERS: Final = 200
_MAX_ERRNO_BYTES: Final = 10
_ADDRESS_BYTES: Final = 8
_MOST_BYTES: Final = min(os.sysconf("SC_ARG_MAX"), 6 * 1024 * 1024)
"""The most bytes of a program's words and environment; Linux accepts no more, for any size of the stack."""
_LONGEST_WORD: Final = 32 * os.sysconf("SC_PAGESIZE") - 1 if sys.platform == "linux" else _MOST_BYTES
_NOTHING: Final = ExternalProgram([b"true"], {}, None)
"""The program of a self-test."""

Word = str | int | float


class ShellInputs(Inputs):
    """Inputs of ``shell``."""

    command: str | Annotated[list[Word], Field(min_length=1)] = Field(
        description="Text for `/bin/sh -c`, or a list: a program and its arguments, without a shell."
    )
    cwd: str | None = Field(
        default=None, min_length=1, description="Working folder. Default: an empty one, removed afterwards."
    )
    env: dict[str, Word] | None = Field(
        default=None,
        description="Environment variables, besides `PATH`, `LANG`, `HOME`, `TMPDIR`, `NOETL_IDEMPOTENCY_KEY`, and in "
        "a trace `TRACEPARENT`.",
    )
    stdin: str | None = Field(default=None, description="Text for standard input. Default: empty.")
    files: dict[Annotated[str, AfterValidator(checked_name)], Any] | None = Field(
        default=None,
        max_length=MAX_FILES,
        description="Files and tables by reference that the command finds in its working folder, by name; read-only.",
    )
    outputs: list[Annotated[str, AfterValidator(checked_pattern)]] | None = Field(
        default=None,
        max_length=MAX_PATTERNS,
        description="Patterns of files that the command leaves in its working folder: `*.csv`. They become the "
        "`files` of the result.",
    )

    @model_validator(mode="after")
    def _fit_together(self) -> ShellInputs:
        error = _combination_error([name for name in ShellInputs.model_fields if getattr(self, name) is not None])
        if error is not None:
            raise ValueError(error)
        return self

    @field_validator("env")
    @classmethod
    def _valid_names(cls, env: dict[str, Word] | None) -> dict[str, Word] | None:
        for name in env or {}:
            if not name or "=" in name:
                raise ValueError(f"invalid environment variable name {name!r}")
        return env


class ShellKnobs(Knobs):
    """Knobs of ``shell``."""

    max_output_bytes: int = Field(
        default=MAX_OUTPUT_BYTES,
        gt=0,
        description="Bytes kept of standard output and of standard error; the rest is dropped.",
    )


_RESULT: Final = frozenset(["exit_code", "stdout", "stderr", "files"])


def _combination_error(given: Collection[str]) -> str | None:
    if "cwd" in given and not {"files", "outputs"}.isdisjoint(given):
        return "`files` and `outputs` are in the command's own folder: leave out `cwd`"
    return None


class ShellTool:
    """Runs each command in a confined child process, in its own process group.

    Args:
        settings: The settings of commands. Default: those of :class:`ChildSettings`.
        proxy: See :class:`Launcher`.
        answer_s: See :class:`Launcher`.
        max_scratch_bytes: The bytes of the files that one command gets, and of those that are kept of it.
    """

    spec = KindSpec(
        kind="shell",
        inputs=ShellInputs,
        knobs=ShellKnobs,
        result_keys=_RESULT,
        combination_error=_combination_error,
        commands=frozenset({"command"}),
    )

    def __init__(
        self,
        settings: ChildSettings | None = None,
        *,
        proxy: EgressProxy | None = None,
        answer_s: float = ANSWER_S,
        max_scratch_bytes: int = DEFAULT_MAX_SCRATCH_BYTES,
    ) -> None:
        self._scratch_folders = ScratchFolders(max_scratch_bytes)
        settings = settings or ChildSettings()
        self._memory_bytes = settings.memory_bytes
        self._launcher = Launcher(settings, proxy=proxy, answer_s=answer_s)
        self._trees = TreeKiller()

    @classmethod
    def configured(cls, settings: ToolSettings) -> ShellTool:
        """Makes the tool with the operator's settings."""
        proxy = EgressProxy.configured(settings)
        return cls(settings.children, proxy=proxy, max_scratch_bytes=settings.max_scratch_bytes)

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{exit_code, stdout, stderr}``, with ``…_dropped_bytes`` for output that was truncated, and with
        ``files`` if the task names ``outputs``.

        Raises:
            ToolFailure: ``exit_status`` (not 0) and ``memory``, which keep the result, ``result_not_json``,
                ``invalid_input`` (also a missing program), ``limit_exceeded`` and ``result_lost`` of files.
            WorkerUnfit: The system is out of resources.
        """
        inputs = validated(ShellInputs, call.inputs)
        knobs = validated(ShellKnobs, call.knobs)
        program = _program(inputs, call)
        self._launcher.check()
        try:
            with beginning("start a command", OWN_TROUBLE):
                result = await self._run_with_files(program, inputs, knobs.max_output_bytes, call)
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise _too_long(program) from None
            where = f" in {inputs.cwd}, which NOETL_CHILD_PATHS has to allow" if inputs.cwd is not None else ""
            raise invalid_input(f"command: cannot start the command{where}: {error.strerror or error}") from None
        if result["exit_code"] != 0:
            raise _exit_failure(result)
        return ToolResult(result)

    async def self_test(self) -> None:
        """See :meth:`~noetl_stream.tools.contract.SelfTested.self_test`."""
        with beginning("start a command", OWN_TROUBLE):
            await self._run(_NOTHING, "", 1, ignore_output)

    async def close(self) -> None:
        """Kills the running commands."""
        await self._launcher.close()
        await self._scratch_folders.close()

    async def _run_with_files(
        self, program: ExternalProgram, inputs: ShellInputs, max_output_bytes: int, call: ToolCall
    ) -> dict[str, Any]:
        running = partial(self._run, program, inputs.stdin, max_output_bytes, call.write)
        if not inputs.files and inputs.outputs is None:
            return await running()
        async with self._scratch_folders.folder() as scratch:
            await place_files(call, inputs.files or {}, scratch)
            keep = None
            if inputs.outputs is not None:
                keep = partial(collect_files, call, patterns=inputs.outputs, scratch=scratch)
            return await running(keep, {FILES: str(scratch.folder)} if inputs.files else {})

    async def _run(
        self,
        program: ExternalProgram,
        text: str | None,
        max_output_bytes: int,
        write: Write,
        keep: Callable[[str], Awaitable[dict[str, Any]]] | None = None,
        folders: Mapping[str, str] = {},
    ) -> dict[str, Any]:
        """Runs the program of a command. Cancelling kills it and everything it started.

        Args:
            keep: Stores the outputs that a successful command has left in its folder, and returns the references.
            folders: See :class:`StartChild`.

        Raises:
            OSError: The program could not be executed.
            ToolFailure: ``memory``, ``result_not_json``.
        """
        with (
            _standard_input(text) as stdin,
            contextlib.closing(_Pipe(max_output_bytes, partial(write, "stdout"))) as stdout,
            contextlib.closing(_Pipe(max_output_bytes, partial(write, "stderr"))) as stderr,
            contextlib.closing(_Pipe(_MAX_ERRNO_BYTES)) as error,
        ):
            pipes = (stdout, stderr, error)
            descriptors = [stdin, *(pipe.writing_end.fileno() for pipe in pipes)]
            process = await self._launcher.start(descriptors, program, folders=folders)
            for pipe in pipes:
                pipe.writing_end.close()
            try:
                exit_code = await asyncio.shield(process.exit_code)
                lacked_memory = exit_code != 0 and process.lacked_memory()
                process.kill()
                kept = None if keep is None or exit_code != 0 else await keep(process.home)
            finally:
                if not process.exit_code.done():
                    await self._trees.kill(process.process_id)
                # Background processes must not outlive the task.
                process.kill()
                await process.end()
            not_executed = error.output.take()[0]
            if not_executed:
                raise OSError(int(not_executed), os.strerror(int(not_executed)))
            result = _result(exit_code, stdout.output.take(), stderr.output.take())
            if kept is not None:
                result["files"] = kept
            if lacked_memory:
                raise ToolFailure.of("memory", memory_words(self._memory_bytes), result=result)
            return result


def _program(inputs: ShellInputs, call: ToolCall) -> ExternalProgram:
    """Returns the program of a command.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    command = ["/bin/sh", "-c", inputs.command] if isinstance(inputs.command, str) else inputs.command
    words = [str(word) for word in command]
    told = {KEY_VARIABLE: call.idempotency_key, TRACE_VARIABLE: call.traceparent}
    given = {name: str(value) for name, value in (inputs.env or {}).items()}
    environment = {name: value for name, value in told.items() if value} | given
    if any("\0" in text for text in (*words, inputs.cwd or "", *environment, *environment.values())):
        raise invalid_input("command, cwd and env must not contain a NUL character")
    # UTF-8 whatever the worker's locale is.
    folder = None if inputs.cwd is None else inputs.cwd.encode()
    if folder is not None and not os.path.isdir(folder):  # noqa: PTH112  a path of bytes
        raise invalid_input("cwd: no such folder on this worker")
    variables = {name.encode(): value.encode() for name, value in environment.items()}
    program = ExternalProgram([word.encode() for word in words], variables, folder)
    if _size(program) > _MOST_BYTES or _longest(program) > _LONGEST_WORD:
        raise _too_long(program)
    return program


@contextlib.contextmanager
def _standard_input(text: str | None) -> Iterator[int]:
    """Returns a descriptor to read ``text`` from. A file, since writing to a pipe would block if nobody reads it."""
    if text is None:
        with Path(os.devnull).open("rb") as nothing:
            yield nothing.fileno()
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", errors="replace"))
        file.seek(0)
        yield file.fileno()


class _Pipe:
    """A pipe for one output of the command. The writing end is closed here once the command has its own."""

    def __init__(self, max_bytes: int, *heard: Heard) -> None:
        reading_end, writing_end = os.pipe()
        self.writing_end = os.fdopen(writing_end, "wb")
        self.output = CapturedOutput(reading_end, max_bytes, *heard)

    def close(self) -> None:
        self.writing_end.close()
        self.output.close()


def _size(program: ExternalProgram) -> int:
    """Returns the size that the kernel counts: words and variables, each with its end and its address."""
    variables = sum(len(name) + len(value) + 2 + _ADDRESS_BYTES for name, value in program.environment.items())
    return sum(len(word) + 1 + _ADDRESS_BYTES for word in program.words) + variables


def _longest(program: ExternalProgram) -> int:
    """Returns the length of the longest word or variable."""
    variables = (len(name) + 1 + len(value) for name, value in program.environment.items())
    return max(*map(len, program.words), *variables)


def _too_long(program: ExternalProgram) -> ToolFailure:
    remedy = "pass the data by stdin or in a file"
    sizes = f"command and env have {_size(program):,} bytes, the longest word or variable {_longest(program):,}"
    most = f"the system takes {_MOST_BYTES:,} in all and {_LONGEST_WORD:,} for one"
    return invalid_input(f"command: Argument list too long: {sizes}; {most}: {remedy}")


def _result(exit_code: int, stdout: tuple[str, int], stderr: tuple[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {"exit_code": exit_code if exit_code >= 0 else _SIGNAL_EXIT_CODE - exit_code}
    for name, (text, dropped_bytes) in (("stdout", stdout), ("stderr", stderr)):
        try:
            result[name] = to_json(text, name=name)
        except NotJson as error:
            raise ToolFailure.of("result_not_json", str(error)) from None
        if dropped_bytes:
            result[f"{name}_dropped_bytes"] = dropped_bytes
    return result


def _exit_failure(result: dict[str, Any]) -> ToolFailure:
    exit_code = result["exit_code"]
    lines = result["stderr"].strip().splitlines()
    last_line = f": {lines[-1][:_SHOWN_CHARACTERS]}" if lines else ""
    message = f"the command exited with {exit_code}{last_line}"
    return ToolFailure.of("exit_status", message, code=str(exit_code), result=result)

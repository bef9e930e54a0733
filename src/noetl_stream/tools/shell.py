"""``kind: shell``: one command, in its own process group that ends with the task (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, field_validator

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.child_process import CapturedOutput, TreeKiller, adopt_orphans, kill_group
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.convert import NotJson, to_json
from noetl_stream.tools.inputs import Inputs, Knobs, invalid_input, validated

MAX_OUTPUT_BYTES: Final = 1024 * 1024
KEY_VARIABLE: Final = "NOETL_IDEMPOTENCY_KEY"
_SIGNAL_EXIT_CODE: Final = 128
"""Added to the number of the signal that ended a command, as shells do."""
_SHOWN_CHARACTERS: Final = 200
_TEMPORARY_ERRORS: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC})
"""The system is out of processes, memory, descriptors or disk space, for now."""

Word = str | int | float


class ShellInputs(Inputs):
    """Inputs of ``shell``."""

    command: str | Annotated[list[Word], Field(min_length=1)] = Field(
        description="Text for `/bin/sh -c`, or a list: a program and its arguments, without a shell."
    )
    cwd: str | None = Field(default=None, min_length=1, description="Working folder. Default: the worker's.")
    env: dict[str, Word] | None = Field(
        default=None, description="Environment variables, in addition to `PATH`, `LANG` and `NOETL_IDEMPOTENCY_KEY`."
    )
    stdin: str | None = Field(default=None, description="Text for standard input. Default: empty.")

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


class ShellTool:
    """Runs each command in its own process group.

    Args:
        allowed: Whether the operator allows commands.
    """

    spec = KindSpec(kind="shell", inputs=ShellInputs, knobs=ShellKnobs)

    def __init__(self, *, allowed: bool = True) -> None:
        self._allowed = allowed
        self._trees = TreeKiller()

    @classmethod
    def configured(cls, settings: ToolSettings) -> ShellTool:
        """The tool, enabled or disabled by the operator."""
        return cls(allowed=settings.shell)

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{exit_code, stdout, stderr}``, with ``…_dropped_bytes`` for output that was truncated.

        Raises:
            ToolFailure: ``exit_status`` (not 0; keeps the result), ``not_allowed``, ``invalid_input`` (also a missing
                program), ``crashed`` (the system is out of resources), ``result_not_json``.
        """
        inputs = validated(ShellInputs, call.inputs)
        knobs = validated(ShellKnobs, call.knobs)
        if not self._allowed:
            raise ToolFailure.of("not_allowed", "the worker's operator has disabled shell tasks (NOETL_SHELL=off)")
        try:
            result = await _run_command(inputs, call.idempotency_key, knobs.max_output_bytes, self._trees)
        except OSError as error:
            raise _not_started(error) from None
        if result["exit_code"] != 0:
            raise _failed(result)
        return ToolResult(result)

    async def close(self) -> None:
        """Nothing to release: a command ends with its run."""


async def _run_command(
    inputs: ShellInputs, idempotency_key: str, max_output_bytes: int, trees: TreeKiller
) -> dict[str, Any]:
    """Runs the command. Cancelling kills it and everything it started.

    Raises:
        ToolFailure: ``invalid_input``, ``result_not_json``.
        OSError: The command could not be started.
    """
    command = ["/bin/sh", "-c", inputs.command] if isinstance(inputs.command, str) else inputs.command
    words = [str(word) for word in command]
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", KEY_VARIABLE: idempotency_key}
    environment |= {name: str(value) for name, value in (inputs.env or {}).items()}
    _check(words, inputs.cwd, environment)
    with (
        _standard_input(inputs.stdin) as stdin,
        contextlib.closing(_Pipe(max_output_bytes)) as stdout,
        contextlib.closing(_Pipe(max_output_bytes)) as stderr,
    ):
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=stdin,
            stdout=stdout.writing_end,
            stderr=stderr.writing_end,
            cwd=inputs.cwd,
            env=environment,
            start_new_session=True,
            preexec_fn=adopt_orphans,
        )
        stdout.writing_end.close()
        stderr.writing_end.close()
        try:
            exit_code = await process.wait()
        finally:
            if process.returncode is None:
                await trees.kill(process.pid)
            # Background processes must not outlive the task.
            kill_group(process.pid)
            await process.wait()
        return _result(exit_code, stdout.output.take(), stderr.output.take())


def _check(words: Sequence[str], cwd: str | None, environment: Mapping[str, str]) -> None:
    if any("\0" in text for text in (*words, cwd or "", *environment, *environment.values())):
        raise invalid_input("command, cwd and env must not contain a NUL character")
    if cwd is not None and not Path(cwd).is_dir():
        raise invalid_input("cwd: no such folder on this worker")


@contextlib.contextmanager
def _standard_input(text: str | None) -> Iterator[int]:
    """A descriptor to read ``text`` from. A file, since writing to a pipe would block if the command does not read."""
    if text is None:
        yield asyncio.subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", errors="replace"))
        file.seek(0)
        yield file.fileno()


class _Pipe:
    """A pipe for one output of the command. We close our writing end once the command has its own."""

    def __init__(self, max_bytes: int) -> None:
        reading_end, writing_end = os.pipe()
        self.writing_end = os.fdopen(writing_end, "wb")
        self.output = CapturedOutput(reading_end, max_bytes)

    def close(self) -> None:
        self.writing_end.close()
        self.output.close()


def _not_started(error: OSError) -> ToolFailure:
    reason = f"cannot start the command: {error.strerror or error}"
    if error.errno in _TEMPORARY_ERRORS:
        return ToolFailure.of("crashed", reason, retryable=True)
    return invalid_input(f"command: {reason}")


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


def _failed(result: dict[str, Any]) -> ToolFailure:
    exit_code = result["exit_code"]
    lines = result["stderr"].strip().splitlines()
    last_line = f": {lines[-1][:_SHOWN_CHARACTERS]}" if lines else ""
    message = f"the command exited with {exit_code}{last_line}"
    return ToolFailure.of("exit_status", message, code=str(exit_code), result=result)

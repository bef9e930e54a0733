"""``kind: python``: playbook code in warm child processes (LANGUAGE §12)."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from pydantic import BeforeValidator, Field, model_validator

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs, invalid_input, validated
from noetl_stream.tools.python.pool import ChildDied, ChildPool, JobAnswer

MIN_CHILDREN: Final = 4
"""Child processes a worker may start on a small machine; on a larger one, as many as it has processors."""
MAX_RESULT_BYTES: Final = 16 * 1024 * 1024

_SCOPE: Final = ("workload", "ctx", "iter")
_TAKEN: Final = frozenset({*_SCOPE, "args", "execution_id"})
_REFLECTION: Final = re.compile(r"\b(?:globals|locals|vars|eval|exec|__builtins__|sys|inspect)\b")


class Library(Inputs):
    """What a name of ``libs`` is bound to: a module, or something in it."""

    module: str = Field(alias="from", min_length=1, description="The module.")
    attribute: str | None = Field(
        default=None, alias="import", description="A name in it; the module itself if absent."
    )


def _named_by_text(value: Any) -> Any:
    return {"from": value} if isinstance(value, str) else value


LibraryOrName = Annotated[Library, BeforeValidator(_named_by_text, json_schema_input_type=str | Library)]
"""A library; text is the name of a module."""


class PythonInputs(Inputs):
    """Inputs of ``python``."""

    code: str = Field(description="The program. Never rendered: values come in by name, through `args`.")
    args: dict[str, Any] | None = Field(
        default=None,
        description="Named inputs: each is a variable of the code, all of them together are `args` and `input_data`.",
    )
    libs: dict[str, LibraryOrName] | None = Field(
        default=None,
        description="Imports made before the code runs: `{np: numpy}` or `{sqrt: {from: math, import: sqrt}}`.",
    )

    @model_validator(mode="after")
    def _names_are_free(self) -> PythonInputs:
        args = self.args or {}
        for name in args:
            if name in _TAKEN:
                raise ValueError(f"args.{name}: every python task has a variable {name!r} already; choose another name")
        for name in self.libs or {}:
            if not name.isidentifier():
                raise ValueError(f"libs.{name}: is no name Python code could use")
            if name in _TAKEN or name in args:
                raise ValueError(f"libs.{name}: the name is taken by an input; choose another name")
        return self


class PythonKnobs(Knobs):
    """Knobs of ``python``."""

    max_result_bytes: int = Field(default=MAX_RESULT_BYTES, gt=0, description="The largest result, in bytes of JSON.")


class PythonTool:
    """Runs code in a small pool of child processes that stay warm.

    Args:
        environment: Environment variables of the child processes. Code of a playbook sees what is in it, so the
            worker's own settings and credentials must not be. By default only a search path and an encoding.
        max_children: Child processes at the same time; further runs wait. By default as many as there are processors,
            at least :data:`MIN_CHILDREN`.
    """

    spec = KindSpec(
        kind="python",
        inputs=PythonInputs,
        knobs=PythonKnobs,
        verbatim=frozenset({"code"}),
        helper="py",
        reads_scope=True,
    )

    def __init__(self, *, environment: Mapping[str, str] | None = None, max_children: int | None = None) -> None:
        if environment is None:
            environment = {"PATH": os.defpath, "LANG": "C.UTF-8"}
        self._max_children = max_children or max(MIN_CHILDREN, os.cpu_count() or 1)
        self._pool = ChildPool(max_children=self._max_children, environment=environment)

    async def run(self, call: ToolCall) -> ToolResult:
        """The result of the code (see :func:`~noetl_stream.tools.python.job.run_job`) and its captured output.

        Raises:
            ToolFailure: ``exception`` and ``syntax`` (helper ``py {exception_type, traceback}``), ``result_not_json``,
                ``result_too_large``, ``crashed`` (the process died), ``invalid_input``.
        """
        inputs = validated(PythonInputs, call.inputs)
        knobs = validated(PythonKnobs, call.knobs)
        frame = _frame(inputs, knobs, call)
        try:
            answer = await self._pool.run(frame)
        except ChildDied as died:
            raise _crashed(died, call) from None
        except OSError as error:
            message = f"no Python process could be started: {error}"
            raise ToolFailure(ErrorInfo(kind="crashed", message=message, retryable=True)) from None
        return _outcome(answer)

    async def close(self) -> None:
        """Kills the child processes."""
        await self._pool.close()


def _frame(inputs: PythonInputs, knobs: PythonKnobs, call: ToolCall) -> bytes:
    job = {
        "code": inputs.code,
        "place": f"{call.step}.{call.task}",
        "args": inputs.args or {},
        "libs": {name: (library.module, library.attribute) for name, library in (inputs.libs or {}).items()},
        "scope": _readable_scope(inputs.code, call.scope),
        "execution_id": call.execution_id,
        "idempotency_key": call.idempotency_key,
        "max_result_bytes": knobs.max_result_bytes,
    }
    try:
        return _encoder.encode(job)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_input(f"args, workload, ctx or iter cannot be handed to the code: {error}") from None


def _readable_scope(code: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    """The parts the code can read: a large ``ctx`` need not travel to code that never names it."""
    all_of_it = _REFLECTION.search(code) is not None
    return {name: scope[name] for name in _SCOPE if name in scope and (all_of_it or name in code)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__qualname__} has no JSON form")


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)


def _outcome(answer: JobAnswer) -> ToolResult:
    result, error, cut = msgspec.json.decode(answer.frame)
    output = _shown(answer.output, answer.output_cut + cut)
    if error is None:
        return ToolResult(result, output=output)
    helper = {name: error[name] for name in ("exception_type", "traceback") if error[name] is not None}
    raise ToolFailure(ErrorInfo(kind=error["kind"], message=error["message"]), helper=helper, output=output)


def _shown(output: str, cut: int) -> str:
    return f"{output}\n… and {cut:,} more bytes, which were not kept\n" if cut else output


def _crashed(died: ChildDied, call: ToolCall) -> ToolFailure:
    how = f"exit code {died.exit_code}"
    if died.exit_code < 0:
        how = f"signal {_signal_name(-died.exit_code)}"
    place = f"{call.step}.{call.task}"
    message = f"the process that ran {place} died ({how})"
    # What faulthandler wrote as the process went down, the innermost line first.
    at_line = re.search(rf'File "<{re.escape(place)}>", line (\d+)', died.output)
    if at_line:
        message += f" in line {at_line[1]}"
    if died.exit_code >= 0:
        message += "; code ends with its last line or with return, os._exit() takes the process with it"
    # A kill from outside is mostly the system's, short of memory: another time there may be enough.
    retryable = died.exit_code == -signal.SIGKILL
    error = ErrorInfo(kind="crashed", message=message, retryable=retryable, code=str(died.exit_code))
    return ToolFailure(error, output=died.output)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)

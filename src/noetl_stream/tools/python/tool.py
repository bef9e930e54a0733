"""``kind: python``: playbook code in reused child processes (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from noetl_stream.concurrency import Capacity
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.kinds.spec import CodeProblem, KindSpec
from noetl_stream.settings.children import PYTHON_CHILDREN_VARIABLE, ChildSettings, EnvironmentSettings
from noetl_stream.settings.tools import DEFAULT_MAX_SCRATCH_BYTES, ToolSettings
from noetl_stream.telemetry.measures import Metric, Reading
from noetl_stream.template.runtime.scope import SHADOWABLE
from noetl_stream.tools.capacity import WAITING
from noetl_stream.tools.cgroups import memory_words
from noetl_stream.tools.children.launcher import ENVIRONMENT, Launcher
from noetl_stream.tools.children.messages import ANSWER_S
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.inputs import AUTH_ALIASES, Inputs, Knobs, invalid_input, validated
from noetl_stream.tools.proxy.egress_proxy import EgressProxy
from noetl_stream.tools.python import child
from noetl_stream.tools.python.code_compiler import (
    NOT_ASYNC,
    attributes_of,
    file_of,
    keys_set_of,
    lacks_async_main,
    last_value_of,
    params_of_main,
    syntax_error,
    unbound_names,
)
from noetl_stream.tools.python.environments.environment_store import Environments, lock_of
from noetl_stream.tools.python.environments.requirements import (
    MAX_REQUIREMENTS,
    RequirementRefused,
    checked_python,
    checked_requirement,
    requirements_in,
    requirements_of,
)
from noetl_stream.tools.python.packages import PackageFolders
from noetl_stream.tools.python.pool import ChildPool
from noetl_stream.tools.python.signatures import args_warning
from noetl_stream.tools.python.template import MAX_JOB_BYTES, ChildDied, Imports, PythonJob
from noetl_stream.tools.scratch.job_files import JobFiles, has_references
from noetl_stream.tools.scratch.scratch import ScratchFolders

MAX_RESULT_BYTES: Final = 16 * 1024 * 1024

LIVING: Final = Metric("gauge", "noetl_worker_python_children", "Processes that live for python tasks.")
MOST: Final = Metric(
    "gauge", "noetl_worker_python_children_max", "Python tasks that run at once (NOETL_PYTHON_CHILDREN)."
)
BUSY: Final = Metric("gauge", "noetl_worker_python_children_busy", "Processes that run a Python task.")
STARTED: Final = Metric("counter", "noetl_worker_python_children_started", "Such processes that were started.")
KILLED: Final = Metric(
    "counter", "noetl_worker_python_children_killed", "Such processes that died or were killed while they ran a task."
)

_NO_ENVIRONMENTS: Final = EnvironmentSettings()
_ERROR_FIELDS: Final = ("kind", "message", "code", "retryable", "retry_after_s")
_SCOPE: Final = ("workload", "ctx", "iter", "execution")
_RESERVED: Final = frozenset({*_SCOPE, "args", "execution_id"}) - SHADOWABLE
_GIVEN: Final = _RESERVED | SHADOWABLE | {"input_data", "idempotency_key"}
_ON_LINE: Final = re.compile(r" on line \d+")
"""A line of the code, which is another one in the file."""
_MODULES: Final = frozenset(["requests", "httpx", "numpy", "pandas", "yaml", "boto3", "psycopg", "polars"])
"""Modules that code often needs and forgets to import."""
_REFLECTION: Final = re.compile(r"\b(?:globals|locals|vars|eval|exec|__builtins__|sys|inspect)\b")


class Library(Inputs):
    """The library that a name in ``libs`` is bound to: a module, or an attribute of it."""

    module: str = Field(alias="from", min_length=1, description="The module.")
    attribute: str | None = Field(
        default=None, alias="import", description="An attribute of the module. Default: the module itself."
    )


def _module_from_text(value: Any) -> Any:
    return {"from": value} if isinstance(value, str) else value


LibraryOrName = Annotated[Library, BeforeValidator(_module_from_text, json_schema_input_type=str | Library)]
"""A library; text is a module name."""


class PythonInputs(Inputs):
    """Inputs of ``python``."""

    code: str | None = Field(default=None, description="The program. Never rendered: pass values through `args`.")
    function: str | None = Field(
        default=None,
        pattern=r"^[^\W\d][\w.]*:[^\W\d][\w.]*$",
        description="The function to call in place of `code`: `package.module:name`. Never rendered.",
    )
    args: dict[str, Any] | None = Field(
        default=None,
        description="Named inputs, each a variable of the code; all together are `args` and `input_data`. "
        "Of a function they are the parameters.",
    )
    auth: str | list[str] | None = Field(
        default=None,
        validation_alias=AUTH_ALIASES,
        description="Credentials that the function finds by name in `secrets` of its `Context`: a name, or a list.",
    )
    libs: dict[str, LibraryOrName] | None = Field(
        default=None,
        description="Imports for the code: `{np: numpy}` or `{sqrt: {from: math, import: sqrt}}`.",
    )

    @model_validator(mode="after")
    def _names_are_free(self) -> PythonInputs:
        error = _combination_error([name for name in PythonInputs.model_fields if getattr(self, name) is not None])
        if error is not None:
            raise ValueError(error)
        if self.code is None:
            return self
        args = self.args or {}
        for name in args:
            if name in _RESERVED:
                raise ValueError(f"args.{name}: reserved variable name; use another")
        for name in self.libs or {}:
            if not name.isidentifier():
                raise ValueError(f"libs.{name}: not a valid Python name")
            if name in _RESERVED or name in args:
                raise ValueError(f"libs.{name}: already used by an input; use another name")
        return self


class EnvironmentKnob(Knobs):
    """The requirements of a task on its interpreter."""

    requires: list[Annotated[str, AfterValidator(checked_requirement)]] = Field(
        default=[], max_length=MAX_REQUIREMENTS, description="Packages: names, extras, versions, markers."
    )
    python: Annotated[str, AfterValidator(checked_python)] = Field(
        default="", description="Versions of Python: `3.12`, or `>=3.12,<3.14`. Default: that of the worker."
    )


class PythonKnobs(Knobs):
    """Knobs of ``python``."""

    max_result_bytes: int = Field(default=MAX_RESULT_BYTES, gt=0, description="Size of the result, in bytes of JSON.")
    python_shared: bool = Field(
        default=False, description="Whether runs of `async def main`, of one playbook and principal, share a process."
    )
    python: EnvironmentKnob | None = Field(
        default=None,
        description="The packages and the Python of an environment of its own, in place of those of the worker.",
    )


def _combination_error(given: Collection[str]) -> str | None:
    if len({"code", "function"} & set(given)) != 1:
        return "`python` needs exactly one of `code` and `function`"
    if {"code", "auth"} <= set(given):
        return '`auth` goes with `function`; pass a secret to code in: args: { key: "{{ keychain.<name> }}" }'
    return "`libs` goes with `code`; a function imports what it needs" if {"function", "libs"} <= set(given) else None


def _problems_of(code: str) -> list[CodeProblem]:
    error = syntax_error(code)
    if error is not None:
        message = f"not Python: {_ON_LINE.sub('', error.msg)}"
        hint = "indent what belongs to the line above by four spaces" if "indent" in message else None
        return [CodeProblem(message, error.lineno or 1, error.offset or 1, hint=hint)]
    try:
        requirements_in(code)
    except RequirementRefused as refused:
        return [CodeProblem(str(refused), refused.line)]
    if _REFLECTION.search(code):
        return []
    unbound = [_unbound(name, place) for name, place in unbound_names(code).items() if name not in _GIVEN]
    unbound += _attributes_of_workload(code)
    unbound += [_read_only(*key, place) for key, place in keys_set_of(code, _SCOPE).items()]
    unbound += _without_result(code)
    needed = [_needed(name, place) for name, place in params_of_main(code).items() if name not in _GIVEN]
    return unbound + needed


def _sharing_error(is_shared: Any, code: str) -> str | None:
    return NOT_ASYNC if is_shared is True and lacks_async_main(code) else None


def _unbound(name: str, place: tuple[int, int]) -> CodeProblem:
    written = f'args: {{ {name}: "{{{{ workload.{name} }}}}" }}'
    hint = f"pass it in: {written}, or read it here as workload[{name!r}]"
    if name in sys.stdlib_module_names or name in _MODULES:
        hint = f"at the top of the code, write `import {name}`"
    elif name == "keychain":
        hint = 'pass the secret in: args: { secret: "{{ keychain.<entry> }}" }'
    return CodeProblem(f"`{name}` is not defined", *place, severity="warning", hint=hint, name=name)


def _attributes_of_workload(code: str) -> list[CodeProblem]:
    """Reads of a key of the workload as an attribute."""
    return [
        CodeProblem(
            f"`workload` is a dict: it has no attribute `{key}`",
            *place,
            severity="warning",
            hint=f"write workload[{key!r}]",
            name="workload",
        )
        for key, place in attributes_of(code, "workload").items()
        if not hasattr(dict, key)
    ]


def _read_only(name: str, key: str, place: tuple[int, int]) -> CodeProblem:
    """The problem of a key that code sets in a namespace, of which it has a copy."""
    failed = "{ when: \"{{ outcome.status == 'error' }}\", then: { do: fail } }"
    rule = f'{{ else: {{ then: {{ do: continue, set_ctx: {{ {key or "<key>"}: "{{{{ outcome.result }}}}" }} }} }} }}'
    hint = f"return the value, and beside `code` write spec: {{ policy: {{ rules: [ {failed}, {rule} ] }} }}"
    return CodeProblem(f"code cannot set `{name}`: it is read-only", *place, severity="warning", hint=hint, name=name)


def _without_result(code: str) -> list[CodeProblem]:
    """The problem of code that gives no result, where another task or step reads it."""
    found = last_value_of(code)
    if found is None:
        return []
    name, place = found
    message = f"the code assigns `{name}` and returns nothing" if name else "the code returns nothing"
    hint = f"at the end of the code, write `return {name}`" if name else "at the end of the code, return its result"
    return [
        CodeProblem(
            f"{message}: its result is null", *place, severity="warning", hint=hint, name=name, only_if_read=True
        )
    ]


def _needed(name: str, place: tuple[int, int]) -> CodeProblem:
    hint = f'pass it in: args: {{ {name}: "{{{{ workload.{name} }}}}" }}, or give it a default'
    return CodeProblem(f"`main` needs `{name}`, which is not an arg", *place, severity="warning", hint=hint, name=name)


class PythonTool:
    """Runs code in a small pool of confined child processes.

    Args:
        settings: The settings of children. Default: those of :class:`ChildSettings`.
        environment: Environment variables of the child processes, visible to playbook code, so it must not contain the
            worker's settings and credentials. Default: only ``PATH`` and ``LANG``.
        max_children: Child processes at the same time; further runs wait. Default: as ``settings`` say.
        preload: See :class:`Launcher`.
        proxy: See :class:`Launcher`.
        answer_s: See :class:`Launcher`; it holds for children too.
        max_scratch_bytes: Bytes of files that one task may read by path.
        environments: The settings of environments of playbooks. Default: none.
        guard: See :class:`Environments`. Default: it lets uv reach the public internet.
    """

    spec = KindSpec(
        kind="python",
        inputs=PythonInputs,
        knobs=PythonKnobs,
        verbatim=frozenset({"code", "function"}),
        code={"code": _problems_of},
        args_warning=args_warning,
        knob_errors={("python_shared", "code"): _sharing_error},
        helper="py",
        reads_scope=True,
        combination_error=_combination_error,
    )

    def __init__(
        self,
        settings: ChildSettings | None = None,
        *,
        environment: Mapping[str, str] = ENVIRONMENT,
        max_children: int | None = None,
        preload: Sequence[str] = (),
        proxy: EgressProxy | None = None,
        answer_s: float = ANSWER_S,
        max_scratch_bytes: int = DEFAULT_MAX_SCRATCH_BYTES,
        environments: EnvironmentSettings = _NO_ENVIRONMENTS,
        guard: EgressProxy | None = None,
    ) -> None:
        self._scratch_folders = ScratchFolders(max_scratch_bytes)
        settings = settings or ChildSettings()
        max_children = max_children or settings.python_children
        self._isolation = settings.isolation
        self._memory_bytes = settings.memory_bytes
        preload = (*child.PRELOADED, *preload)
        launcher = Launcher(
            settings, environment, server=child.__name__, preload=preload, proxy=proxy, answer_s=answer_s
        )
        self._pool = ChildPool(launcher, max_children=max_children, answer_s=answer_s)
        self._packages = PackageFolders(lambda: self._pool.folders)
        guard = guard or EgressProxy(Egress())
        self._environments = Environments(environments, settings, proxy, guard, lambda: self._pool.folders)
        self.debugger: int | None = None
        self._debugging = asyncio.Lock()

    @classmethod
    def configured(cls, settings: ToolSettings) -> PythonTool:
        """Makes the tool with the operator's settings."""
        return cls(
            settings.children,
            proxy=EgressProxy.configured(settings),
            environments=settings.python_environments,
            guard=EgressProxy.of_index(settings),
            max_scratch_bytes=settings.max_scratch_bytes,
        )

    def readings(self) -> Sequence[Reading]:
        """Returns the metrics of the tool: see :class:`~noetl_stream.telemetry.measures.Measured`."""
        pool = self._pool
        return [
            LIVING.read(len(pool)),
            MOST.read(pool.capacity.most),
            BUSY.read(pool.capacity.busy),
            WAITING.read(pool.capacity.waiting, self.spec.kind),
            STARTED.read(pool.started),
            KILLED.read(pool.killed),
        ]

    @property
    def capacity(self) -> Capacity:
        """The capacity for tasks: the running ones, and those that wait for a child."""
        return self._pool.capacity

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns the code's result (see :func:`~noetl_stream.tools.python.job.run_job`) and its captured output.

        Raises:
            ToolFailure: ``exception`` and ``syntax`` (helper ``py {exception_type, traceback}``), ``result_not_json``,
                ``result_too_large``, ``crashed`` (the process died), ``memory``, ``invalid_input``.
        """
        inputs = validated(PythonInputs, call.inputs)
        knobs = validated(PythonKnobs, call.knobs)
        heard = partial(call.write, "stdout")  # both streams, in the order of writing
        queued = partial(call.queued, self._wait_text)
        code = inputs.code or ""
        program = code, inputs.function or file_of(_place(call))
        if code and (reason := _sharing_error(knobs.python_shared, code)) is not None:
            raise invalid_input(reason)
        is_debugged = self.debugger is not None
        fields = _encode_job(inputs, knobs, call, await _secrets_of(inputs, call), is_debugged=is_debugged)
        alone = self._debugging if is_debugged else contextlib.nullcontext()
        try:
            fetching = self._scratch_folders.folder() if has_references(fields) else contextlib.nullcontext()
            async with alone, self._imports(inputs, knobs, call) as imports, fetching as scratch:
                job = PythonJob(
                    fields,
                    program,
                    knobs.max_result_bytes,
                    None if scratch else self._domain(call, imports),
                    heard,
                    namespace=call.namespace,
                    queued=queued,
                    beat=call.beat,
                    shares=knobs.python_shared and not is_debugged,
                    imports=imports._replace(files=str(scratch.folder) if scratch else ""),
                    debugger=self.debugger,
                    files=JobFiles(call, fields, scratch),
                )
                answer = await self._pool.run(job)
        except ChildDied as died:
            raise _crash_failure(died, call, self._memory_bytes) from None
        failed = answer.error
        if failed is None:
            return ToolResult(answer.result, output=answer.output)
        told = {name: failed.pop(name, None) for name in _ERROR_FIELDS}
        error = ErrorInfo(**{name: value for name, value in told.items() if value is not None})
        raise ToolFailure(error, helper=failed, output=answer.output)

    async def self_test(self) -> None:
        """See :meth:`~noetl_stream.tools.contract.SelfTested.self_test`."""
        await self._pool.self_test()

    @property
    def _wait_text(self) -> str:
        most = self.capacity.most
        return f"a free Python child: {most} of {most} busy, {PYTHON_CHILDREN_VARIABLE} sets how many"

    async def close(self) -> None:
        """Kills the child processes of the tool."""
        await self._pool.close()
        await self._packages.close()
        await self._environments.close()
        await self._scratch_folders.close()

    @contextlib.asynccontextmanager
    async def _imports(self, inputs: PythonInputs, knobs: PythonKnobs, call: ToolCall) -> AsyncIterator[Imports]:
        """Yields what the code can import, as long as the context."""
        given = None if knobs.python is None else knobs.python.model_dump()
        try:
            converts = inputs.function is not None or knobs.python_shared
            wanted = requirements_of(given, inputs.code or "", converts=converts)
        except RequirementRefused as refused:
            raise invalid_input(str(refused)) from None
        async with self._packages.of(call) as packages:
            if wanted is None:
                yield Imports(packages)
                return
            lock = await asyncio.to_thread(lock_of, wanted, packages)
            async with self._environments.of(wanted, lock, call) as made:
                yield Imports(packages, made)

    def _domain(self, call: ToolCall, imports: Imports) -> str | None:
        """Returns the trust domain of a job: jobs of one may share a child."""
        if self._isolation == "task":
            return None
        domain = call.execution_id if self._isolation == "execution" else call.trust_domain
        return domain if imports.environment is None else f"{domain} {imports.environment.folder}"


def _place(call: ToolCall) -> str:
    return f"{call.step}.{call.task}"


async def _secrets_of(inputs: PythonInputs, call: ToolCall) -> dict[str, Any]:
    """Returns the credentials that a function may use, by name."""
    names = [inputs.auth] if isinstance(inputs.auth, str) else inputs.auth or []
    return {name: await call.credential(name) for name in names}


def _encode_job(
    inputs: PythonInputs, knobs: PythonKnobs, call: ToolCall, secrets: dict[str, Any], *, is_debugged: bool
) -> bytes:
    job: dict[str, Any] = {
        "code": inputs.code or "",
        "place": _place(call),
        "args": inputs.args or {},
        "libs": {name: (library.module, library.attribute) for name, library in (inputs.libs or {}).items()},
        "scope": _readable_scope(inputs.code or "", call.scope),
        "execution_id": call.execution_id,
        "idempotency_key": call.idempotency_key,
        "max_result_bytes": knobs.max_result_bytes,
    }
    if inputs.function is not None:
        job |= {"function": inputs.function, "context": {**_context_of(call), "secrets": secrets}}
    if is_debugged:
        job["debugged"] = True
    if call.traceparent:
        job["traceparent"] = call.traceparent
    try:
        fields = _encoder.encode(job)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_input(f"cannot pass args, workload, ctx or iter to the code: {error}") from None
    if has_references(fields):
        fields = fields[:-1] + b',"files":true}'
    if len(fields) > MAX_JOB_BYTES:
        what = f"code, args, workload, ctx and iter have {len(fields):,} bytes of JSON"
        raise invalid_input(f"{what}; at most {MAX_JOB_BYTES:,} can be passed")
    return fields


def _context_of(call: ToolCall) -> dict[str, Any]:
    """Returns the fields of the context that a function may ask for."""
    total_s = call.timeouts.total
    return {
        "execution_id": call.execution_id,
        "step": call.step,
        "task": call.task,
        "attempt": call.attempt,
        "idempotency_key": call.idempotency_key,
        "deadline": None if total_s is None else time.time() + total_s,
        "previous_details": call.previous_details,
    }


def _readable_scope(code: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the namespaces that the code can read: a large ``ctx`` is not sent to code that never names it."""
    all_of_it = _REFLECTION.search(code) is not None
    return {name: scope[name] for name in _SCOPE if name in scope and (all_of_it or name in code)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"cannot encode {type(value).__qualname__} as JSON")


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)


def _crash_failure(died: ChildDied, call: ToolCall, memory_bytes: int) -> ToolFailure:
    how = f"exit code {died.exit_code}" if died.exit_code >= 0 else f"signal {_signal_name(-died.exit_code)}"
    place = _place(call)
    with_it = f", and with it {died.others} more that share it (python_shared)" if died.others else ""
    message = f"the process that ran {place} died ({how}){with_it}"
    if died.reason:
        message += f": {died.reason}"
    # The traceback that faulthandler wrote, innermost line first.
    at_line = re.search(rf'File "<{re.escape(place)}>", line (\d+)', died.errors)
    if at_line:
        message += f" on line {at_line[1]}"
    if died.exit_code == -signal.SIGXCPU:
        message += "; it used more CPU time than the operator allows (NOETL_CHILD_CPU_S)"
    if died.lacked_memory:
        message = f"{message}: {memory_words(memory_bytes)}"
        return ToolFailure.of("memory", message, retryable=died.others > 0, output=died.output)
    if died.exit_code >= 0:
        message += "; end the code with return, not with os._exit()"
    # SIGKILL mostly means out of memory, so a retry may succeed.
    retryable = died.exit_code == -signal.SIGKILL or died.others > 0
    return ToolFailure.of("crashed", message, retryable=retryable, code=str(died.exit_code), output=died.output)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)

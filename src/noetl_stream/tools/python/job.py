"""Runs playbook code once in a child process (LANGUAGE §12 *python*).

Imports the standard library only, apart from the encoder, to keep child processes small.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import keyword
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, TracebackType
from typing import Any, Final, NoReturn

from noetl_stream.tools.convert import NotJson, to_json
from noetl_stream.tools.python.ahead import use_ahead
from noetl_stream.tools.python.annotations import Unfit, call_function
from noetl_stream.tools.python.code_compiler import BODY, NOT_ASYNC, NOT_ASYNC_FUNCTION, compile_program, file_of
from noetl_stream.tools.python.line import debug
from noetl_stream.tools.scratch.task_files import RETURNED_FILES, with_paths

MODULE: Final = "noetl_task"
"""The ``__name__`` of playbook code. Not ``__main__``, so that the code does not call ``main()`` itself. In a process
that jobs share, the number of the job follows.
"""
MAX_TRACEBACK_CHARACTERS: Final = 16 * 1024
MAX_MESSAGE_CHARACTERS: Final = 2_000

in_environment = False
"""Whether this process has the packages of an environment instead of the worker's."""

_MISSING: Final = object()
_SHOWN_LEAVES: Final = 3
_WHAT_IT_SEES: Final = "a task may use its own folder, $HOME, and what the worker's NOETL_CHILD_PATHS allows"


class JobFailed(Exception):
    """The error outcome of a run: ``error {kind, message, code, exception_type, traceback, retryable, retry_after_s}``,
    the first two always.

    Functions of plugins raise it too (:class:`~noetl_stream.tools.python.function.ChildFunction`).
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        code: str | None = None,
        exception_type: str | None = None,
        trace: str | None = None,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        message = _truncate(message, MAX_MESSAGE_CHARACTERS)
        error = {
            "kind": kind,
            "message": message,
            "code": code,
            "exception_type": exception_type,
            "traceback": trace,
        }
        self.error: dict[str, Any] = {name: _encodable(text) for name, text in error.items() if text is not None}
        if retryable is not None:
            self.error |= {"retryable": retryable, "retry_after_s": retry_after_s}


def run_job(job: Mapping[str, Any]) -> Any:
    """Runs a job's code with fresh globals, or calls its function, and returns its result as plain JSON.

    Args:
        job: ``code``, ``place`` (``step.task``), ``args``, ``libs`` (name to ``[module, attribute or null]``),
            ``scope`` (those of ``workload``, ``ctx``, ``iter`` and ``execution`` that the code can see, and that no
            input is called), ``execution_id``, ``idempotency_key``; for a function ``function`` (``module:name``) and
            ``context``; ``files``, if what looks like a reference in ``args`` can be opened.

    Raises:
        JobFailed: ``syntax``, ``exception``, ``invalid_input`` or ``result_not_json``.
    """
    with _failures(job):
        if "files" in job:
            job = {**job, "args": with_paths(job["args"])}
        value = _value_of(job, MODULE)
        if inspect.iscoroutine(value):
            import asyncio  # imported here, since most code needs no event loop and children start faster without it

            value = asyncio.run(value)
        return to_json(value, also=RETURNED_FILES)


async def run_shared_job(job: Mapping[str, Any], number: int) -> Any:
    """Runs a job like :func:`run_job`, for code whose result is a coroutine, in the event loop shared with other jobs.

    Args:
        number: The number of the job in this process.
    """
    name = f"{MODULE}_{number}"
    with _failures(job):
        try:
            value = _value_of(job, name)
            if not inspect.iscoroutine(value):
                raise JobFailed("invalid_input", NOT_ASYNC_FUNCTION if "function" in job else NOT_ASYNC)
            return to_json(await value, also=RETURNED_FILES)
        finally:
            sys.modules.pop(name, None)


@contextlib.contextmanager
def _failures(job: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except JobFailed:
        raise
    except NotJson as error:
        raise JobFailed("result_not_json", str(error)) from None
    except BaseException as error:  # SystemExit and KeyboardInterrupt end the job, not this process
        failed = _exception(error, _own_file(job))
        if job.get("debugged"):
            with contextlib.suppress(Exception):  # the terminal may be gone
                debug(error, _from_own_code(error.__traceback__, _own_file(job)))
        raise failed from None


def _own_file(job: Mapping[str, Any]) -> str:
    """Returns the file of the author's own lines: that of the function's module, if there is one and it is loaded."""
    if "function" not in job:
        return file_of(job["place"])
    return getattr(sys.modules.get(job["function"].partition(":")[0]), "__file__", None) or ""


def show_log_records() -> None:
    """Shows the log records of the code from INFO on, unless it sets up logging: Python would show warnings only."""
    import logging  # imported here, since the template does that in a way of its own

    last_resort = logging.lastResort
    assert last_resort is not None
    last_resort.setLevel(logging.INFO)
    last_resort.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    logging.root.setLevel(logging.INFO)


def _value_of(job: Mapping[str, Any], name: str) -> Any:
    """Runs the code and returns its value: a coroutine is not awaited yet. ``name`` is that of its module."""
    use_ahead(job.get("function", ""))
    if "function" in job:
        return _call(job["function"], job)
    try:
        program = compile_program(job["code"], file_of(job["place"]))
    except SyntaxError as error:
        raise _syntax(error) from None
    module = ModuleType(name)
    sys.modules[name] = module
    bound = _variables(job)
    names = vars(module)
    names.update(bound)
    exec(program.code, names)
    if program.returns:
        body: Callable[[], Any] = names.pop(BODY)
        returned = body()
        if returned is not None:
            return returned
    result = names.get("result", _MISSING)
    if result is not _MISSING and result is not bound.get("result", _MISSING):
        return result
    main = names.get("main")
    if callable(main) and main is not bound.get("main"):
        return _call_main(main, bound)
    return None


def _call(path: str, job: Mapping[str, Any]) -> Any:
    """Calls the function ``module:name`` with the inputs of a job."""
    module, _, name = path.partition(":")
    function = _load("function", module, None)
    for part in name.split("."):
        if not hasattr(function, part):
            raise JobFailed("invalid_input", f"function: {module} has no {name}")
        function = getattr(function, part)
    if not callable(function):
        raise JobFailed("invalid_input", f"function: {path} is not a function but {_type_name(function)}")
    try:
        return call_function(function, job["args"], job["context"])
    except Unfit as error:
        raise JobFailed("invalid_input", f"{path}: {error}") from None


def _variables(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the code's variables. Inputs take precedence over ``input_data`` and ``idempotency_key``."""
    args: dict[str, Any] = job["args"]
    bound: dict[str, Any] = {"input_data": args, "idempotency_key": job["idempotency_key"]}
    bound.update({name: value for name, value in args.items() if name.isidentifier() and not keyword.iskeyword(name)})
    bound["args"] = args
    bound["execution_id"] = job["execution_id"]
    bound.update({name: read_only(value) for name, value in job["scope"].items() if name not in args})
    bound.update({name: _load(f"libs.{name}", *source) for name, source in job["libs"].items()})
    return bound


def _load(name: str, module: str, attribute: str | None) -> Any:
    """Imports the library for the input ``name``."""
    try:
        loaded = sys.modules.get(module) or importlib.import_module(module)
        if attribute is None:
            return loaded
        if hasattr(loaded, attribute):
            return getattr(loaded, attribute)
        return importlib.import_module(f"{module}.{attribute}")
    except ImportError as error:
        message = f"{name}: {error}{_remedy(error)}"
        raise JobFailed("exception", message, exception_type=_type_name(error), trace="") from None


def _call_main(main: Callable[..., Any], bound: Mapping[str, Any]) -> Any:
    try:
        parameters = inspect.signature(main).parameters.values()
    except (TypeError, ValueError):
        return main()
    positional: list[Any] = []
    named: dict[str, Any] = {}
    has_kwargs = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            has_kwargs = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif parameter.name in bound:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(bound[parameter.name])
            else:
                named[parameter.name] = bound[parameter.name]
        elif parameter.default is parameter.empty:
            given = ", ".join(sorted(bound["args"])) or "no inputs"
            raise JobFailed("invalid_input", f"main() needs {parameter.name!r}, but args has {given}")
    if has_kwargs:
        named = {**bound["args"], **named}
    return main(*positional, **named)


def _syntax(error: SyntaxError) -> JobFailed:
    where = f"line {error.lineno}: " if error.lineno else ""
    trace = "".join(traceback.TracebackException(type(error), error, None).format())
    return JobFailed("syntax", f"{where}{error.msg}", exception_type=_type_name(error), trace=trace)


def _exception(error: BaseException, filename: str) -> JobFailed:
    own = _from_own_code(error.__traceback__, filename)
    lines = traceback.TracebackException(type(error), error, own).format()
    trace = _truncate("".join(lines), MAX_TRACEBACK_CHARACTERS, keep_end=True)
    reason = _message_of(error)
    name = _type_name(error)
    line = _last_own_line(own, filename)
    where = f" (line {line} of {filename.strip('<>')})" if line is not None else ""
    message = f"{name}: {reason}{where}" if reason else f"{name}{where}"
    told = [*map(_retries, _leaves(error))]
    fatal = [one for one in told if one[0] is False]
    retryable, after_s = (fatal or [one for one in told if one[0] is None] or [max(told, key=_wait_s)])[0]
    return JobFailed("exception", message, exception_type=name, trace=trace, retryable=retryable, retry_after_s=after_s)


def _leaves(error: BaseException) -> list[BaseException]:
    """Returns the exceptions of a group, of a ``TaskGroup`` for example; of any other exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for one in error.exceptions for leaf in _leaves(one)]


def _retries(error: BaseException) -> tuple[bool | None, float | None]:
    """Returns whether an exception says that the attempt may be repeated, and the least wait."""
    retryable, after_s = getattr(error, "retryable", None), getattr(error, "retry_after_s", None)
    if not isinstance(retryable, bool):
        return None, None
    return retryable, float(after_s) if isinstance(after_s, int | float) and 0 <= after_s < float("inf") else None


def _wait_s(told: tuple[bool | None, float | None]) -> float:
    return told[1] or 0.0


def _message_of(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the code called sys.exit({error.code!r})"
    try:
        told = str(error)
        if isinstance(error, BaseExceptionGroup):
            told += ": " + "; ".join(f"{_type_name(one)}: {_message_of(one)}" for one in _leaves(error)[:_SHOWN_LEAVES])
        return _truncate(told, MAX_MESSAGE_CHARACTERS) + _remedy(error)
    except Exception as broken:
        return f"reading its message raised {type(broken).__name__}"


def _remedy(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and in_environment:
        return "; name its package in `requires`, or deploy it with a project, in its `packages`"
    if isinstance(error, ModuleNotFoundError):
        place = f"install it in {sys.prefix}, the worker's Python, and restart workers that ran before"
        own = "name its folder in their NOETL_PYTHON_PATH, or deploy it with a project, in its `packages`"
        return f"; {place}, require its package (`python: {{ requires: [...] }}`), {own}"
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"; {_WHAT_IT_SEES}"
    if isinstance(error, FileNotFoundError) and _is_of_the_machine(error.filename):
        return f"; {_WHAT_IT_SEES}: nothing else exists for it"
    return ""


def _is_of_the_machine(path: object) -> bool:
    """Returns whether even the folder of the file is missing, as for files that the operator has not opened."""
    return isinstance(path, str) and os.path.isabs(path) and not os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH117, PTH120


def _from_own_code(trace: TracebackType | None, filename: str) -> TracebackType | None:
    """Returns the traceback from the playbook's first frame on."""
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    return trace


def _last_own_line(trace: TracebackType | None, filename: str) -> int | None:
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _type_name(error: object) -> str:
    kind = type(error)
    is_own = kind.__module__ == "builtins" or kind.__module__.startswith(MODULE)
    return kind.__qualname__ if is_own else f"{kind.__module__}.{kind.__qualname__}"


def _truncate(text: str, limit: int, *, keep_end: bool = False) -> str:
    if len(text) <= limit:
        return text
    return f"… {text[-limit:]}" if keep_end else f"{text[:limit]} …"


def _encodable(text: str) -> str:
    """Escapes lone surrogates in a text, since JSON cannot hold them."""
    return text.encode(errors="backslashreplace").decode()


def read_only(value: Any) -> Any:
    """Returns a read-only copy of plain JSON: writing to it raises, since a write would be lost.

    Its lists and mappings subclass ``list`` and ``dict``, so that ``isinstance``, ``json.dumps`` and ``copy`` work.
    """
    if isinstance(value, dict):
        return ReadOnlyDict({key: read_only(item) for key, item in value.items()})
    if isinstance(value, list):
        return ReadOnlyList([read_only(item) for item in value])
    return value


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError("workload, ctx and iter are read-only; copy them, or set ctx and iter in the task's policy")


class ReadOnlyDict(dict[str, Any]):
    """A mapping whose methods that write raise ``TypeError``. Copies are plain."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: _thaw(item) for key, item in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


class ReadOnlyList(list[Any]):
    """A list whose methods that write raise ``TypeError``. Copies are plain."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def copy(self) -> list[Any]:
        return list(self)

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [_thaw(item) for item in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))


def _thaw(value: Any) -> Any:
    if isinstance(value, ReadOnlyDict | ReadOnlyList):
        return value.__deepcopy__({})
    return value

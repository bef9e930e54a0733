"""Calls a function with the inputs of a task, converted to the types of its parameters.

Annotations are read by msgspec; those with a model or a constraint of pydantic, by pydantic. Text never becomes a
number. Child processes load this module.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NamedTuple

from noetl_stream.tools.convert import encode_json
from noetl_stream.tools.python.line import LINE
from noetl_stream.tools.scratch.task_files import NotOpened, opened_as, wants_file, work_folder

CONTEXT: Final = "noetl_stream_client.tasks.Context"
"""The class of the parameter that gets the context of the run."""


_PLAIN: Final = (str, int, float, bool)
_PLAIN_NAMES: Final = tuple(kind.__name__ for kind in _PLAIN)
_READ_ALONE: Final = (*_PLAIN, dict, list, Any)
_VARIABLE: Final = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class FileHint(NamedTuple):
    """The annotation of a parameter that gets a file or table opened."""

    hint: Any


class Unfit(Exception):
    """Inputs that do not fit a function; the message is the reason."""


def call_function(function: Callable[..., Any], args: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Calls a function and returns its value; a coroutine is not awaited.

    Args:
        args: The parameters by name, as plain JSON.
        context: The fields of the context of the run, with ``deadline`` in seconds since the epoch.

    Raises:
        Unfit: A parameter is missing, unknown, or no value of its type.
    """
    if is_simple(function) and _fits(function, args):
        return function(**args)
    parameters = parameters_of(function)
    if parameters is None:
        return function(**args)
    given = dict(args)
    for name, hint in parameters.hints.items():
        if name in given:
            given[name] = _convert(name, given[name], hint)
        elif _is_context(hint):
            given[name] = _context(hint, context)
    if parameters.are_named and given.keys() <= parameters.hints.keys() and given.keys() >= {*parameters.required}:
        return function(**given)
    signature = inspect.signature(function)
    by_place = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is not parameter.POSITIONAL_ONLY or name not in given:
            break
        by_place.append(given.pop(name))
    try:
        bound = signature.bind(*by_place, **given)
    except TypeError as error:
        raise Unfit(f"{error}: it is {getattr(function, '__name__', 'called as ')}{signature}") from None
    return function(*bound.args, **bound.kwargs)


def is_simple(function: Any) -> typing.TypeGuard[FunctionType]:
    """Returns whether a function has no defaults, and parameters with a scalar type or without annotation alone.

    This and :func:`_fits` do without :func:`parameters_of`, which costs a new process twenty pages of memory.
    """
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__:
        return False
    code, hints = function.__code__, function.__annotations__
    if code.co_posonlyargcount or code.co_flags & _VARIABLE:
        return False
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        hint = hints.get(name, str)
        if (hint not in _PLAIN_NAMES or hint in function.__globals__) if type(hint) is str else hint not in _PLAIN:
            return False
    return True


def _fits(function: FunctionType, args: Mapping[str, Any]) -> bool:
    """Returns whether a simple function has these parameters, and their values need no conversion."""
    code, hints = function.__code__, function.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if len(args) != len(names):
        return False
    for name in names:
        if name not in args:
            return False
        kind, hint = type(args[name]), hints.get(name)
        if hint is not None and hint is not kind and hint != kind.__name__:
            return False
    return True


class FunctionParameters(NamedTuple):
    """The parameters of a function.

    Attributes:
        hints: The type of each.
        required: The parameters without a default.
        are_named: Whether a call can pass each by name.
    """

    hints: Mapping[str, Any]
    required: Sequence[str] = ()
    are_named: bool = False


@lru_cache(maxsize=2)
def parameters_of(function: Callable[..., Any]) -> FunctionParameters | None:
    """Returns the parameters of a function; ``None`` for one in C, which does not reveal them.

    Raises:
        Unfit: An annotation cannot be read.
    """
    try:
        if type(function) is FunctionType and not vars(function) and (found := _plain_parameters(function)):
            return found
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    except NameError as error:
        raise _unreadable(error) from None
    try:
        hints = typing.get_type_hints(_annotated(function), include_extras=True)
    except (TypeError, NameError) as error:
        raise _unreadable(error) from None
    named = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return FunctionParameters({name: _hint_of(hints.get(name, Any)) for name in named})


def _annotated(function: Any) -> Any:
    """Returns what has the annotations of a callable, which may be an object or a ``functools.partial``."""
    while isinstance(function, partial):
        function = function.func
    return function if hasattr(function, "__name__") else type(function).__call__


def _hint_of(hint: Any) -> Any:
    return FileHint(hint) if hint not in _READ_ALONE and wants_file(hint) else hint


def _unreadable(error: Exception) -> Unfit:
    return Unfit(f"its annotations cannot be read: {error}")


def _plain_parameters(function: FunctionType) -> FunctionParameters | None:
    """Returns the parameters of a function whose annotations are classes, without what reads all others: `inspect` and
    `typing` write to many pages of memory, each of which a forked process has to copy first.
    """
    code, defaults, named = function.__code__, function.__defaults__ or (), function.__kwdefaults__ or {}
    if code.co_posonlyargcount or code.co_flags & _VARIABLE:
        return None
    positional, hints, required = code.co_argcount, {}, []
    for place, name in enumerate(code.co_varnames[: positional + code.co_kwonlyargcount]):
        hint = function.__annotations__.get(name, Any)
        if isinstance(hint, str):
            hint = function.__globals__.get(hint) or getattr(builtins, hint, None)
        if hint not in _READ_ALONE:
            if not isinstance(hint, type):
                return None
            hint = _hint_of(hint)
        hints[name] = hint
        if (place < positional - len(defaults)) if place < positional else (name not in named):
            required.append(name)
    return FunctionParameters(hints, required, are_named=True)


def _is_context(hint: Any) -> bool:
    return isinstance(hint, type) and f"{hint.__module__}.{hint.__qualname__}" == CONTEXT


def _context(kind: Callable[..., Any], fields: Mapping[str, Any]) -> Any:
    """Makes the context of a run; the class of an older release has only some of the fields."""
    deadline = fields["deadline"]
    shown = {
        **fields,
        "deadline": None if deadline is None else datetime.fromtimestamp(deadline, UTC),
        "folder": Path(work_folder()),
        "line": LINE.get(),
    }
    known = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in shown.items() if name in known})


def _convert(name: str, value: Any, hint: Any) -> Any:
    if hint is Any or (hint is type(value) and hint in _PLAIN):
        return value
    if type(hint) is FileHint:
        try:
            return opened_as(hint.hint, value)
        except NotOpened as error:
            raise Unfit(f"args.{name}: {error}") from None
    if _names_pydantic(hint):
        return _validate(name, value, hint)
    import msgspec  # code in an environment of its own may lack it

    try:
        return msgspec.convert(value, hint, dec_hook=opened_as)
    except msgspec.ValidationError as error:
        raise Unfit(f"args.{name}: {error}") from None
    except TypeError:  # not a type of msgspec, as a dataclass with a model of pydantic in it
        return _validate(name, value, hint) if "pydantic" in sys.modules else value


def _names_pydantic(hint: Any) -> bool:
    """Returns whether an annotation has a model or a constraint of pydantic."""
    kinds = hint.__mro__ if isinstance(hint, type) else type(hint).__mro__
    if any(kind.__module__.partition(".")[0] in ("pydantic", "annotated_types") for kind in kinds):
        return True
    return any(map(_names_pydantic, (*typing.get_args(hint), *getattr(hint, "__metadata__", ()))))


def _validate(name: str, value: Any, hint: Any) -> Any:
    from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_json(encode_json(value), strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = "".join(f".{part}" for part in problem["loc"])
        raise Unfit(f"args.{name}{where}: {problem['msg']}") from None
    except PydanticSchemaGenerationError:  # not a type of data
        return value

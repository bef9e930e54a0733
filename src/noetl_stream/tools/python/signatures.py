"""Signatures of functions, read from the source of their modules, of which nothing is imported or run."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl_stream.playbook.suggestions import did_you_mean

MAX_SOURCE_BYTES: Final = 1024 * 1024
"""The largest module that is read."""

MAX_PARSED: Final = 16
"""The number of modules that are kept, since most tasks of a playbook call functions of a few."""

_SCALARS: Final[Mapping[str, tuple[type, ...]]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_FILES: Final = frozenset(
    {
        *(
            "Path",
            "BinaryIO",
            "TextIO",
            "IO[bytes]",
            "IO[str]",
            "BufferedReader",
            "TextIOWrapper",
            "DataFrame",
            "LazyFrame",
        ),
        *("pa.Table", "pyarrow.Table", "RecordBatchReader"),
    }
)
"""The annotations of parameters that get a file or table opened, most of them without their module."""


class FunctionParameter(msgspec.Struct, frozen=True, gc=False):
    """A parameter, with its annotation as written: empty without one."""

    name: str
    annotation: str
    is_required: bool


class FunctionSignature(msgspec.Struct, frozen=True, gc=False):
    """The parameters of a function. ``text`` shows them; ``is_open``: it takes any others too (``**more``)."""

    text: str
    parameters: Sequence[FunctionParameter]
    is_open: bool


_more_folders: ContextVar[Sequence[str]] = ContextVar("more_folders", default=())


@contextmanager
def modules_in(folders: Sequence[str]) -> Iterator[None]:
    """Finds modules in these folders first, also those of functions that a test of a playbook calls."""
    token = _more_folders.set(folders)
    try:
        yield
    finally:
        _more_folders.reset(token)


def given_folders() -> Sequence[str]:
    """The folders of :func:`modules_in`."""
    return _more_folders.get()


def args_warning(inputs: Mapping[str, Any]) -> str | None:
    """Returns the reason why ``args`` do not fit ``function``, as far as its source shows before they are rendered.

    Args:
        inputs: The inputs by field, with their templates as written.
    """
    path, args = inputs.get("function"), inputs.get("args") or {}
    found = signature_of(path) if isinstance(path, str) and isinstance(args, dict) else None
    if isinstance(found, str) or found is None:
        return found
    known = {one.name: one for one in found.parameters}
    missing = [one.name for one in found.parameters if one.is_required and one.name not in args]
    unknown = [] if found.is_open else [name for name in args if name not in known]
    wrong = [name for name, value in args.items() if name in known and not _fits(value, known[name].annotation)]
    said = [f"needs `{name}`" for name in missing]
    said += [f"takes no `{name}`{_instead(name, known)}" for name in unknown]
    said += [f"wants {known[name].annotation} for `{name}`" for name in wrong]
    return f"{found.text} {', '.join(said)}" if said else None


def signature_of(path: str) -> FunctionSignature | str | None:
    """Returns the signature of ``module:name``; why there is no such function; ``None`` if nothing is known of it: its
    module is not found here, where there are no packages that should have it, or makes it in another way than by
    ``def``.
    """
    module, _, name = path.partition(":")
    parts = module.split(".")
    spec = _spec_of(parts)
    if spec is None:
        should_be_there = _more_folders.get() and parts[0] not in sys.stdlib_module_names
        return f"the packages of the project have no module `{module}`" if should_be_there else None
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    node: ast.AST | None = _parsed(Path(spec.origin))
    if node is None:
        return None
    for part in name.split("."):
        names = dict(_definitions(node))
        if part not in names:
            return None if _may_bind(node, part) else f"`{module}` has no function `{name}`{_instead(part, names)}"
        node = names[part]
    return _read(path, node) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _parsed(file: Path) -> ast.Module | None:
    """Returns the tree of a module; ``None`` if it cannot be read, is too large, or does not parse here."""
    try:
        found = file.stat()
    except OSError:
        return None
    return _parsed_version(file, found.st_mtime_ns, found.st_size) if found.st_size <= MAX_SOURCE_BYTES else None


@lru_cache(maxsize=MAX_PARSED)
def _parsed_version(file: Path, _written_ns: int, _size: int) -> ast.Module | None:
    with warnings.catch_warnings(action="ignore"):
        try:
            return ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _spec_of(parts: Sequence[str]) -> ModuleSpec | None:
    from noetl_stream.settings.sources.environment import python_path

    folders = [*_more_folders.get(), *sys.path, *map(str, python_path())]
    spec: ModuleSpec | None = None
    for part in parts:
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
    return spec


def _definitions(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield one.name, one


def _may_bind(node: ast.AST, name: str) -> bool:
    """Returns whether a module or class may have this name other than by a definition in it."""
    for one in ast.walk(node):
        if isinstance(one, ast.alias) and {one.name, one.asname} & {name, "*"}:
            return True
        if isinstance(one, ast.Name) and one.id in (name, "globals", "setattr"):
            return True
    return not isinstance(node, ast.Module) or "__getattr__" in dict(_definitions(node))


def _instead(name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known)
    return f"; {hint}" if hint else ""


def _read(path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> FunctionSignature | None:
    if node.decorator_list:  # decorators may change them
        return None
    given, named = [*node.args.posonlyargs, *node.args.args], node.args.kwonlyargs
    without_default = len(given) - len(node.args.defaults)
    required = [place < without_default for place in range(len(given))]
    required += [default is None for default in node.args.kw_defaults]
    parameters = []
    for one, is_required in zip((*given, *named), required, strict=True):
        annotation = "" if one.annotation is None else ast.unparse(one.annotation).strip("'\"")
        is_context = annotation.rpartition(".")[2] == "Context"
        parameters.append(FunctionParameter(one.arg, annotation, is_required and not is_context))
    return FunctionSignature(f"{path}({ast.unparse(node.args)})", parameters, node.args.kwarg is not None)


def _fits(value: Any, annotation: str) -> bool:
    if isinstance(value, str) and "{" in value:
        return True
    if _is_file(annotation):  # only a template can provide one
        return value is None and "None" in annotation
    wanted = _SCALARS.get(annotation)
    return wanted is None or (isinstance(value, wanted) and (annotation == "bool" or not isinstance(value, bool)))


def _is_file(annotation: str) -> bool:
    """Returns whether a parameter with this annotation gets a file or table opened, or ``None``."""
    arms = {arm.strip() for arm in annotation.split("|")} - {"None"}
    return bool(arms) and all(not _FILES.isdisjoint({arm, arm.rpartition(".")[2]}) for arm in arms)

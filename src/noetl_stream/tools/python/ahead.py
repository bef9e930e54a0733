"""Imports the module of a function before its job arrives: most runs call the function of the previous one.

The template compiles the module, and each process that it forks runs it. What the module prints is printed when the job
begins. If a file has changed since, the job imports anew what is not installed: workers see what is installed later
once they restart.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import stat
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec
from itertools import accumulate
from types import CodeType, ModuleType
from typing import Any, Final

from noetl_stream.tools.python.annotations import is_simple, parameters_of

CLOCK_TICK_NS: Final = 20_000_000
"""The largest lag of a file's time behind the clock: more than the kernel takes between two ticks."""

_LIBRARY: Final = os.__file__.rpartition("/")[0]
INSTALLED: Final = tuple(
    f"{folder}/"
    for folder in (_LIBRARY, *sys.path)
    if folder.endswith(("-packages", "lib-dynload", _LIBRARY.rpartition("/")[2]))
)
"""The folders of installed modules. `sysconfig` knows them too, and imports `threading` in Python 3.13."""


class _Ahead:
    """The modules that this process has imported ahead.

    Attributes:
        module: The one of the function they were imported for; else empty.
        files: The modules that are not installed: the file of each, and the version of that.
        printed: The output of the modules.
        output: A descriptor: a copy of standard output, which is standard error too.
        nowhere: A descriptor that drops what is written.
    """

    def __init__(self) -> None:
        self.module = ""
        self.output = self.nowhere = -1
        self.files: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.printed = io.StringIO()

    def has_changed(self) -> bool:
        """Returns whether a file has."""
        for file, version in self.files.values():  # noqa: SIM110  # a generator is another function call
            if _version_of(file) != version:
                return True
        return False


_ahead = _Ahead()


class _CompiledLoader(SourceFileLoader):
    """Loads a module whose file is compiled already."""

    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class CompiledModules:
    """Finds what the function of the last job was imported from, its packages and its module, as compiled by the
    template: else each process would look for them in all folders, and compile them again where no file has that.

    Nothing is run here, and what cannot be found or compiled like that is left to the import.
    """

    def __init__(self) -> None:
        self._function = ""
        self.found: dict[str, tuple[ModuleSpec, tuple[int, ...]]] = {}
        self._made: dict[str, tuple[ModuleType, CodeType]] = {}

    def compile(self, function: str) -> None:
        """Compiles the modules of ``module:name``, if they are not, or have changed."""
        if function == self._function and all(map(self._is_current, self.found)):
            return
        self._function, self.found, self._made = function, {}, {}
        with contextlib.suppress(Exception):
            self._add(function.partition(":")[0].split("."))

    def load(self, name: str) -> Any:
        """Runs a compiled module, and its packages, in the module object that the template has made: each called
        function of :mod:`importlib` costs memory. Modules that are not compiled are imported. Files that have changed
        since are left to :func:`use_ahead`.
        """
        parent, _, last = name.rpartition(".")
        package = self.load(parent) if parent else None  # which may import the module
        if name in sys.modules or name not in self._made:
            return importlib.import_module(name)
        module, code = self._made[name]
        sys.modules[name] = module
        try:
            exec(code, vars(module))
        except BaseException:
            del sys.modules[name]
            raise
        if package is not None:
            setattr(package, last, module)
        return sys.modules[name]

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`."""
        return self.found[name][0] if name in self.found and self._is_current(name) else None

    def _add(self, parts: Sequence[str]) -> None:
        folders = None
        for name in accumulate(parts, "{}.{}".format):
            spec, began_ns = PathFinder.find_spec(name, folders), time.time_ns() - CLOCK_TICK_NS
            if spec is None or type(spec.loader) is not SourceFileLoader or not spec.origin:
                return
            version, loader = _version_of(spec.origin, began_ns), _CompiledLoader(name, spec.origin)
            if not version:
                self._function = ""  # it may be changing: next time
                return
            code = spec.loader.get_code(name)
            assert code is not None  # as of all sources
            loader.code, spec.loader, spec.cached = code, loader, spec.cached  # which is made when it is first read
            self.found[name], self._made[name] = (spec, version), (module_from_spec(spec), code)
            folders = spec.submodule_search_locations

    def _is_current(self, name: str) -> bool:
        spec, version = self.found[name]
        return _version_of(spec.origin or "") == version


def open_outputs() -> None:
    """Opens what :func:`import_ahead` needs in the processes that this one forks."""
    _ahead.output, _ahead.nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)


def close_outputs() -> None:
    """Closes them again, so that no job has them."""
    os.close(_ahead.output)
    os.close(_ahead.nowhere)


def import_ahead(path: str, modules: CompiledModules) -> None:
    """Imports the module of ``module:name`` and reads the parameters of the function. Errors are shown when the job
    does so. Output of Python code is kept for the job, that of other code is dropped: another job may be
    running. Calls are kept to a minimum: the first call of a function makes a forked process copy pages.
    """
    module, _, names = path.partition(":")
    last, began_ns = next(reversed(sys.modules)), time.time_ns() - CLOCK_TICK_NS
    streams = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = _ahead.printed
    try:
        os.dup2(_ahead.nowhere, 1)
        os.dup2(_ahead.nowhere, 2)
        found = modules.load(module)
        for name in names.split("."):
            found = getattr(found, name)
        if not is_simple(found):
            parameters_of(found)
    except BaseException:  # noqa: S110  # the job raises it again
        pass
    finally:
        sys.stdout, sys.stderr = streams
        os.dup2(_ahead.output, 1)
        os.dup2(_ahead.output, 2)
    _ahead.module = module
    for name in reversed(sys.modules):  # reading all names would write to their memory
        if name == last:
            break
        file = getattr(sys.modules[name], "__file__", None)
        if isinstance(file, str) and not file.startswith(INSTALLED):
            _ahead.files[name] = file, modules.found[name][1] if name in modules.found else _version_of(file, began_ns)
    _ahead.has_changed()


def use_ahead(path: str) -> None:
    """Prints the modules' output if a job calls a function of the expected module. Otherwise, or if a file has changed,
    the job imports what it needs itself.

    Args:
        path: The function of the job; empty if it runs code.
    """
    if not _ahead.module:
        return
    if path.partition(":")[0] != _ahead.module or _ahead.has_changed():
        for name in _ahead.files:
            sys.modules.pop(name, None)
    elif _ahead.printed.tell():
        sys.stdout.write(_ahead.printed.getvalue())
    _ahead.module = ""  # of runs that share a process the first uses it


def _version_of(file: str, since_ns: int | None = None) -> tuple[int, ...]:
    """Returns the version of a file; nothing if it is newer than this time."""
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return ()
    if since_ns is not None and found.st_ctime_ns >= since_ns:
        return ()
    # Each attribute costs pages of memory.
    return found[stat.ST_DEV], found[stat.ST_INO], found[stat.ST_SIZE], found.st_mtime_ns

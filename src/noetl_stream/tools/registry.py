"""The installed tool kinds, by the entry point group ``noetl_stream.tools`` (LANGUAGE §12).

An entry point's name is the kind; its value is a class that implements :class:`~noetl_stream.tools.contract.Tool` with
the class attribute ``spec``. An unusable plugin is skipped and reported; the others keep working.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import Distribution, EntryPoint, entry_points
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple

from noetl_stream import DISTRIBUTION
from noetl_stream.errors import UsageError
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.settings.tools import KINDS_OFF_VARIABLE, OWN_PREFIX, ToolSettings
from noetl_stream.tools.contract import Tool, ToolCall, ToolFailure, ToolResult

GROUP: Final = "noetl_stream.tools"
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")

ToolClass = type[Tool]
"""A tool class: callable without arguments, with a :class:`KindSpec` as ``spec``."""

log = logging.getLogger(__name__)


class Source(NamedTuple):
    """The package that a kind comes from."""

    name: str
    version: str


class InstalledTools(NamedTuple):
    """The usable tool classes and their sources, by kind, and the reasons why others are unusable: a line each."""

    tools: dict[str, ToolClass]
    sources: dict[str, Source]
    problems: list[str]


class _Unusable(Exception):
    """A tool class cannot be used; the message has the reason."""


def installed_tools(points: Iterable[EntryPoint] | None = None) -> InstalledTools:
    """Loads the tool kinds of this environment. A plugin cannot replace a built-in kind.

    Args:
        points: The entry points to load. Default: those of :data:`GROUP`.
    """
    found = entry_points(group=GROUP) if points is None else points
    installed = InstalledTools({}, {}, [])
    for source, point in sorted(_with_sources(found), key=_built_in_first):
        try:
            if point.name in installed.sources:
                raise _Unusable(f"the kind is already provided by {installed.sources[point.name].name}; uninstall one")
            installed.tools[point.name] = _load(point)
            installed.sources[point.name] = source
        except _Unusable as reason:
            where = f"{source.name} (entry point {point.name} = {point.value})"
            first_line = str(reason).splitlines()[0]
            installed.problems.append(f"tool kind {point.name!r} of {where} cannot be used: {first_line}")
    return installed


def load_tools() -> dict[str, ToolClass]:
    """Returns the usable tool classes by kind. Logs a warning for each unusable one."""
    installed = installed_tools()
    for problem in installed.problems:
        log.warning("%s", problem)
    return installed.tools


class KindOff:
    """A replacement for a tool that the operator has switched off."""

    def __init__(self, spec: KindSpec) -> None:
        self.spec = spec

    async def run(self, call: ToolCall) -> ToolResult:
        """Refuses the task, since its kind is off.

        Raises:
            ToolFailure: ``not_allowed``.
        """
        message = f"the worker's operator has switched off {self.spec.kind} tasks ({KINDS_OFF_VARIABLE})"
        raise ToolFailure.of("not_allowed", message)

    async def close(self) -> None:
        """Releases nothing: the tool holds no resources."""


def create_tools(tools: Mapping[str, ToolClass], settings: ToolSettings) -> dict[str, Tool]:
    """Makes one tool of each class. A class method ``configured``, if present, receives the operator's settings.

    Raises:
        UsageError: A kind to be switched off or set does not exist, or a kind refuses its own settings.
    """
    if unknown := sorted(settings.kinds_off - tools.keys()):
        hint = f"the kinds here are {', '.join(sorted(tools))}"
        raise UsageError(f"{KINDS_OFF_VARIABLE} names {unknown[0]!r}, which is not a kind", hint=hint)
    with_settings = sorted(kind for kind, tool in tools.items() if hasattr(tool, "settings"))
    for kind in sorted(settings.own.keys() - with_settings):
        known = ", ".join(with_settings) or "none"
        hint = f"the kinds here that have settings are {known}; install the plugin of {kind}"
        raise UsageError(f"{OWN_PREFIX}{kind.upper()} sets a kind that is not installed or has no settings", hint=hint)
    created: dict[str, Tool] = {}
    for kind, tool in tools.items():
        if kind in settings.kinds_off:
            created[kind] = KindOff(tool.spec)
            continue
        configured = getattr(tool, "configured", None)
        created[kind] = tool() if configured is None else configured(settings)
    return created


def kinds_of(tools: Mapping[str, ToolClass], off: Collection[str] = ()) -> Kinds:
    """Returns the specs of these tools, for the playbook checker, which warns of those that are ``off``."""
    return {kind: replace(tool.spec, off=True) if kind in off else tool.spec for kind, tool in tools.items()}


def _load(point: EntryPoint) -> ToolClass:
    try:
        tool: ToolClass = point.load()
    except (Exception, SystemExit) as error:  # importing a plugin may raise anything
        raise _Unusable(f"importing {point.value} raised {type(error).__name__}: {error}") from None
    reason = _unusable_reason(point.name, tool)
    if reason is not None:
        raise _Unusable(f"{point.value} {reason}")
    return tool


def _unusable_reason(kind: str, tool: Any) -> str | None:
    spec = getattr(tool, "spec", None)
    if not callable(tool) or not isinstance(spec, KindSpec):
        return "is not a tool: it must be a class with the attribute `spec`, a KindSpec"
    if not _NAME.fullmatch(kind):
        return "has an entry point name that is not a valid kind: use lower-case letters, digits and `_`"
    if spec.kind != kind:
        return f"has kind {spec.kind!r}, but its entry point is named {kind!r}"
    for method in ("run", "close"):
        if not iscoroutinefunction(getattr(tool, method, None)):
            return f"has no `async def {method}`"
    return None


def _with_sources(points: Iterable[EntryPoint]) -> Iterator[tuple[Source, EntryPoint]]:
    """Yields the entry points with their packages, whose metadata is read once, since that takes long."""
    known: dict[Distribution | None, Source] = {}
    for point in points:
        if point.dist not in known:
            known[point.dist] = _source(point.dist)
        yield known[point.dist], point


def _source(distribution: Distribution | None) -> Source:
    if distribution is None:
        return Source("an unnamed distribution", "")
    metadata = distribution.metadata
    return Source(metadata["Name"], metadata["Version"])


def _built_in_first(found: tuple[Source, EntryPoint]) -> tuple[bool, str, str]:
    source, point = found
    return source.name != DISTRIBUTION, source.name, point.name

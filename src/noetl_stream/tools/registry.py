"""The tool kinds installed here, ours and others', by the entry point group ``noetl_stream.tools`` (LANGUAGE §12).

An entry point's name is the kind; its value is a class that implements :class:`~noetl_stream.tools.contract.Tool` and
has the class attribute ``spec``. A plugin that cannot be used is left out and said; the others work.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import iscoroutinefunction
from typing import Any, Final

from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import Tool

GROUP: Final = "noetl_stream.tools"
_DISTRIBUTION: Final = "noetl-stream"
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")

ToolClass = Callable[[], Tool]
"""A class of tools: called without arguments it gives one; its ``spec`` is a :class:`KindSpec`."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PluginProblem:
    """A tool kind that is installed and cannot be used. ``message`` is one line that names where it comes from."""

    kind: str
    distribution: str
    message: str


@dataclass(frozen=True, slots=True)
class Installed:
    """What an environment offers: usable classes by kind, and what is wrong with the others."""

    tools: Mapping[str, ToolClass]
    problems: tuple[PluginProblem, ...] = ()


def installed_tools(points: Iterable[EntryPoint] | None = None) -> Installed:
    """Every tool kind of this environment, ours first: a plugin cannot take the name of one of ours.

    Args:
        points: Entry points to look at; those of the group :data:`GROUP` by default.
    """
    found = entry_points(group=GROUP) if points is None else points
    tools: dict[str, ToolClass] = {}
    sources: dict[str, str] = {}
    problems: list[PluginProblem] = []
    for point in sorted(found, key=_ours_first):
        source = _distribution(point)
        if point.name in tools:
            reason = f"the kind is already provided by {sources[point.name]}"
            problems.append(_problem(point, f"{reason}; uninstall one of the two"))
            continue
        loaded = _load(point)
        if isinstance(loaded, PluginProblem):
            problems.append(loaded)
        else:
            tools[point.name] = loaded
            sources[point.name] = source
    return Installed(tools, tuple(problems))


def load_tools() -> dict[str, ToolClass]:
    """The usable tool classes by kind; what cannot be used is logged as a warning."""
    installed = installed_tools()
    for problem in installed.problems:
        log.warning("%s", problem.message)
    return dict(installed.tools)


def made_tools(tools: Mapping[str, ToolClass], settings: ToolSettings) -> dict[str, Tool]:
    """One tool of each class. A class with a method ``configured`` is handed what the operator lets tools do."""
    made: dict[str, Tool] = {}
    for kind, tool in tools.items():
        configured = getattr(tool, "configured", None)
        made[kind] = tool() if configured is None else configured(settings)
    return made


def kinds_of(tools: Mapping[str, ToolClass]) -> Kinds:
    """What the playbook checker needs to know of these tools."""
    return {kind: _spec_of(tool) for kind, tool in tools.items()}


def _load(point: EntryPoint) -> ToolClass | PluginProblem:
    try:
        tool = point.load()
    except (Exception, SystemExit) as error:  # a plugin's import may raise anything
        return _problem(point, f"importing {point.value} raised {type(error).__name__}: {error}")
    wrong = _what_is_wrong(point.name, tool)
    if wrong is not None:
        return _problem(point, f"{point.value} {wrong}")
    loaded: ToolClass = tool
    return loaded


def _what_is_wrong(kind: str, tool: Any) -> str | None:
    spec = getattr(tool, "spec", None)
    if not callable(tool) or not isinstance(spec, KindSpec):
        return "is no tool: it needs a class with the attribute `spec`, a KindSpec"
    if not _NAME.fullmatch(kind):
        return "has an entry point name that is no kind: small letters, digits and `_`"
    if spec.kind != kind:
        return f"says its kind is {spec.kind!r}; its entry point's name says {kind!r}"
    for method in ("run", "close"):
        if not iscoroutinefunction(getattr(tool, method, None)):
            return f"has no `async def {method}`"
    return None


def _spec_of(tool: ToolClass) -> KindSpec:
    spec: KindSpec = tool.spec  # type: ignore[attr-defined]  # checked when it was loaded
    return spec


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unnamed distribution"


def _ours_first(point: EntryPoint) -> tuple[bool, str, str]:
    source = _distribution(point)
    return source != _DISTRIBUTION, source, point.name


def _problem(point: EntryPoint, reason: str) -> PluginProblem:
    source = _distribution(point)
    first_line = reason.splitlines()[0]
    where = f"{source} (entry point {point.name} = {point.value})"
    message = f"tool kind {point.name!r} of {where} cannot be used: {first_line}"
    return PluginProblem(kind=point.name, distribution=source, message=message)

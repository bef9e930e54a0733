"""The requirements of a task on its environment: versions of packages and of Python, without their sources."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl_stream.model.bundles import LOCKS

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from noetl_stream.playbook.plan import Plan

CONVERTER: Final = "msgspec>=0.19"
"""The package that converts the inputs of functions, and the messages of shared processes."""

MAX_REQUIREMENTS: Final = 200
_MINORS: Final = range(11, 30)
_PATCHES: Final = range(60)
_FORM: Final = (
    "write a name, perhaps extras, versions and a marker: polars>=1.30, or httpx[http2]~=0.28; python_version > '3.11'"
)
_BEGIN, _END = "# /// script", "# ///"


class RequirementRefused(ValueError):
    """A requirement that no environment can meet; ``line`` is that of the code, ``0`` if it is not in code."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class Requirements(msgspec.Struct, frozen=True):
    """The packages of an environment, and the versions of Python that fit; empty for any that a worker has."""

    requires: tuple[str, ...]
    python: str = ""

    @property
    def digest(self) -> str:
        """The name of their lock."""
        return sha256(msgspec.json.encode(self)).hexdigest()

    @property
    def lock_name(self) -> str:
        """The file of their lock in a bundle."""
        return f"{LOCKS}/{self.digest}.txt"

    @property
    def least_python(self) -> str:
        """The oldest version of Python that fits, as ``3.12``."""
        return f"3.{next(minor for minor in _MINORS if _has_minor(specifiers(self.python), minor))}"


def requirements_of(python: Mapping[str, Any] | None, code: str, *, converts: bool) -> Requirements | None:
    """The requirements of a task: those at the top of its code, else those of its knob ``python``; ``None`` if it runs
    with the packages of its worker.

    Args:
        converts: Whether it needs :data:`CONVERTER`: it calls a function, or shares a process.

    Raises:
        RequirementRefused: one is none.
    """
    given = requirements_in(code) or python
    if given is None or not (given.get("requires") or given.get("python")):
        return None
    requires = [checked_requirement(one) for one in given.get("requires") or ()]
    if converts:
        requires.append(CONVERTER)
    return Requirements(tuple(sorted({*requires})), checked_python(given.get("python") or ""))


def checked_requirement(text: str) -> str:
    """A requirement in its usual form.

    Raises:
        RequirementRefused: it is none, or says where a package comes from.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(text)
    except InvalidRequirement:
        raise RequirementRefused(f"{text!r:.200} is not a requirement: {_FORM}") from None
    if found.url is not None:
        hint = "leave out the address: packages come from the index of the operator"
        raise RequirementRefused(f"{text!r:.200} names a place: {hint}")
    return str(found)


def checked_python(text: str) -> str:
    """Versions of Python as a specifier: ``3.12`` is any 3.12.

    Raises:
        RequirementRefused: they are none, or there is no such Python from 3.11 on.
    """
    from packaging.specifiers import InvalidSpecifier

    try:
        found = specifiers(f"=={text}.*" if re.fullmatch(r"\d+(\.\d+)?", text) else text)
    except InvalidSpecifier:
        hint = 'write "3.12", or versions: ">=3.12,<3.14"'
        raise RequirementRefused(f"{text!r:.80} is not a version of Python: {hint}") from None
    if not any(_has_minor(found, minor) for minor in _MINORS):
        raise RequirementRefused(f"no Python from 3.11 on fits {text!r:.80}")
    return str(found)


@lru_cache(maxsize=64)
def specifiers(text: str) -> SpecifierSet:
    """The versions of Python in a text."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


def _has_minor(found: SpecifierSet, minor: int) -> bool:
    return any(found.contains(f"3.{minor}.{patch}") for patch in _PATCHES)


@lru_cache(maxsize=256)
def requirements_in(code: str) -> Mapping[str, Any] | None:
    """The requirements in the block ``# /// script`` at the top of code (PEP 723), as a knob ``python``; ``None``
    without it.

    Raises:
        RequirementRefused: it cannot be read, or says more than ``dependencies`` and ``requires-python``.
    """
    lines = code.splitlines()
    begin = next((place for place, line in enumerate(lines) if line.rstrip() == _BEGIN), None)
    if begin is None:
        return None
    block = _block(lines[begin + 1 :], begin + 1)
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in block)
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        raise RequirementRefused(
            f"the block at the top is not TOML: {error}", begin + 1 + int(found[1] if found else 0)
        ) from None
    if "uv" in read.get("tool", {}):
        message = "`tool.uv` says where packages come from, which the operator does: leave it out"
        raise RequirementRefused(message, _line_of("tool.uv", lines, begin))
    for name in read.keys() - {"dependencies", "requires-python", "tool"}:
        message = f"the block at the top knows `dependencies` and `requires-python`, no `{name}`"
        raise RequirementRefused(message, _line_of(name, lines, begin))
    requires, python = read.get("dependencies", []), read.get("requires-python", "")
    if (
        not isinstance(python, str)
        or not isinstance(requires, list)
        or not all(isinstance(one, str) for one in requires)
    ):
        raise RequirementRefused("`dependencies` is a list of texts, `requires-python` a text", begin + 1)
    _check_each(requires, python, lines, begin)
    return {"requires": requires, "python": python}


def _check_each(requires: Iterable[str], python: str, lines: Sequence[str], begin: int) -> None:
    for one, check in (*((one, checked_requirement) for one in requires), (python, checked_python)):
        try:
            check(one)
        except RequirementRefused as refused:
            raise RequirementRefused(str(refused), _line_of(one, lines, begin)) from None


def _block(lines: Sequence[str], line: int) -> list[str]:
    for place, one in enumerate(lines):
        if one.rstrip() == _END:
            return [*lines[:place]]
        if not one.startswith("#") or one[1:2] not in ("", " "):
            break
    message = f"the block at the top has no end: a line `{_END}`, after lines that begin with `# `"
    raise RequirementRefused(message, line)


def _line_of(text: str, lines: Sequence[str], begin: int) -> int:
    return next((place for place in range(begin, len(lines)) if text in lines[place]), begin) + 1


def required_by(plan: Plan) -> dict[Requirements, int]:
    """The requirements of a playbook's tasks, with the line of the first task that has each."""
    found: dict[Requirements, int] = {}
    for task in (task for step in plan.every_step for task in step.tasks if task.kind == "python"):
        given, code = task.knobs.get("python"), task.verbatim.get("code")
        with suppress(RequirementRefused):  # which is an error of the check
            converts = bool(task.verbatim.get("function") or task.knobs.get("python_shared"))
            wanted = requirements_of(given, code if isinstance(code, str) else "", converts=converts)
            if wanted is not None:
                found.setdefault(wanted, task.line)
    return found

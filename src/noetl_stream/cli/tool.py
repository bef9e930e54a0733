"""``noetl-stream tool list|new``."""

from __future__ import annotations

import keyword
import re
import shlex
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import click

import noetl_stream
from noetl_stream.cli.base.files import write_project
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_documents, say
from noetl_stream.errors import UsageError
from noetl_stream.playbook.kinds.spec import LANGUAGE_KINDS
from noetl_stream.settings.sources.environment import kinds_off
from noetl_stream.tools.registry import installed_tools

COLUMNS: Final = columns_of("kind", "package", "version", note=lambda kind: "switched off" if kind["is_off"] else "")

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


@click.group()
def tool() -> None:
    """List the tool kinds that are installed here, and make new ones."""


@tool.command("list")
@form_option()
def list_tools(output: str) -> None:
    """List the kinds, with the packages they come from. Prints to stderr why others cannot be used."""
    installed, off = installed_tools(), kinds_off()
    for problem in installed.problems:
        say(f"warning: {problem}", err=True)
    documents = [
        {
            "kind": kind,
            "package": source.name,
            "version": source.version,
            "is_off": kind in off,
            "inputs": sorted(installed.tools[kind].spec.inputs.model_fields),
        }
        for kind, source in sorted(installed.sources.items())
    ]
    print_documents(documents, output, COLUMNS, "kind")


@tool.command()
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=None,
    help="Where to write it. [default: noetl-stream-NAME, in the current folder]",
)
def new(name: str, directory: Path | None) -> None:
    """Create a package with the tool kind NAME, its test and a playbook that uses it.

    Existing files are never overwritten: if one of the files exists, nothing is written. Prints the path of each new
    file.
    """
    _check_name(name)
    distribution = f"noetl-stream-{name.replace('_', '-')}"
    folder = directory or Path(distribution)
    words = {
        "kind": name,
        "distribution": distribution,
        "module": f"noetl_stream_{name}",
        "class_name": name.title().replace("_", ""),
        "versions": _versions(noetl_stream.__version__),
    }
    paths = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        "tool.py": f"src/{words['module']}/tool.py",
        "test_tool.py": f"tests/test_{name}.py",
        "playbook.yaml": f"playbooks/{name}.yaml",
    }
    template = files("noetl_stream.cli") / "tool_template"
    texts = {path: template.joinpath(f"{file}.txt").read_text(encoding="utf-8") for file, path in paths.items()}
    project = {path: Template(text).substitute(words) for path, text in texts.items()}
    project[f"src/{words['module']}/__init__.py"] = f'"""The task kind ``{name}`` for noetl-stream."""\n'
    write_project(folder, project, hint="choose another --directory")
    say(f"next: cd {shlex.quote(str(folder))} && pip install --editable '.[test]' && pytest", err=True)


def _check_name(name: str) -> None:
    """
    Raises:
        UsageError: no kind can have the name.
    """
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name):
        hint = "use up to 40 lower-case letters, digits and _, as in `lamp`; it is the `kind` that playbooks write"
        raise UsageError(f"{name!r} cannot be the name of a kind", hint=hint)
    taken = installed_tools().sources.get(name)
    if taken is not None or name in LANGUAGE_KINDS:
        where = f"comes with {taken.name}" if taken is not None else "belongs to the language"
        raise UsageError(f"the kind {name!r} {where}", hint="choose another name")


def _versions(version: str) -> str:
    """The versions that a plugin made for this one works with: before 1.0, a minor version may break something."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return f">={major}.{minor},<{major + 1}" if major else f">=0.{minor},<0.{minor + 1}"

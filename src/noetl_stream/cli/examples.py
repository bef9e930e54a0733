"""``noetl-stream example|init``: the example playbooks that come with the program, and projects made from them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from noetl_stream.cli.base.files import shipped, write_project
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_documents, print_source, say
from noetl_stream.errors import NotFound

PROJECT_FOLDER: Final = "playbooks"
"""The place of their files named in the first lines of examples."""

_METADATA: Final = re.compile(r"^metadata:\n(?:  .*\n)+", re.MULTILINE)
_FILE: Final = re.compile(rf"\b{PROJECT_FOLDER}/(\w+\.(?:yaml|py))\b")
_SECTION: Final = re.compile(r"^(Needs|Run|Expect):\s+(.*(?:\n {8}.*)*)", re.MULTILINE)
_INDENT: Final = re.compile(r"^ {8}", re.MULTILINE)


class Example(NamedTuple):
    """An example playbook.

    Attributes:
        description: ``metadata.description``, one line.
        text: The whole file.
        summary: The first comment: its purpose in a few sentences.
        needs: Its prerequisites, as text; empty if none.
        run: The commands to run it, one per line.
        expect: The result.
        files: The other files that it needs, by their paths in a project.
    """

    name: str
    description: str
    text: str
    summary: str
    needs: str
    run: str
    expect: str
    files: Mapping[str, str]


def example_names() -> list[str]:
    """The names of all examples, sorted: those of files, and of folders with a project."""
    names = [
        one.name.removesuffix(".yaml") for one in _folder().iterdir() if one.is_dir() or one.name.endswith(".yaml")
    ]
    return sorted(name for name in names if "." not in name and not name.startswith("_"))


def read_example(name: str) -> Example:
    """
    Raises:
        NotFound: the example does not exist.
    """
    if name not in example_names():
        raise NotFound(f"example {name!r} not found", hint="list the examples: `noetl-stream example list`")
    project = dict(_files_below(_folder().joinpath(name)))
    text = project.pop(f"{PROJECT_FOLDER}/{name}.yaml", "")
    return _parse(name, text or read_example_file(f"{name}.yaml"), project)


def _files_below(folder: Traversable, place: str = "") -> Iterator[tuple[str, str]]:
    for one in sorted(folder.iterdir(), key=lambda one: one.name) if folder.is_dir() else ():
        if one.is_dir() and one.name != "__pycache__":
            yield from _files_below(one, f"{place}{one.name}/")
        elif one.is_file():
            yield f"{place}{one.name}", one.read_text(encoding="utf-8")


def read_example_file(file_name: str) -> str:
    """The text of an example, or of another file that it needs."""
    return _folder().joinpath(file_name).read_text(encoding="utf-8")


def _folder() -> Traversable:
    return shipped("examples", PROJECT_FOLDER)


def _parse(name: str, text: str, project: Mapping[str, str]) -> Example:
    from ruamel.yaml import YAML

    found = _METADATA.search(text)
    metadata = YAML(typ="safe", pure=True).load(found[0])["metadata"] if found else {}
    head = re.sub(r"^# ?", "", text.partition("\napiVersion:")[0], flags=re.MULTILINE)
    sections = {title: _INDENT.sub("", section) for title, section in _SECTION.findall(head)}
    named = [file for file in _FILE.findall(head) if file != f"{name}.yaml"]
    needed = {f"{PROJECT_FOLDER}/{file}": read_example_file(file) for file in named}
    return Example(
        name,
        metadata.get("description", ""),
        text,
        summary=head.partition("\n\n")[0],
        needs=sections.get("Needs", ""),
        run=sections.get("Run", ""),
        expect=sections.get("Expect", ""),
        files={**needed, **project},
    )


@click.group()
def example() -> None:
    """List and show example playbooks.

    `noetl-stream init --example NAME` creates a project from an example.
    """


@example.command("list")
@form_option()
def list_examples(output: str) -> None:
    """List the examples."""
    found = [read_example(name) for name in example_names()]
    documents = [
        {
            "name": one.name,
            "description": one.description,
            "files": [file.removeprefix(f"{PROJECT_FOLDER}/") for file in one.files],
        }
        for one in found
    ]
    print_documents(documents, output, columns_of("name", "description"), "name")


@example.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the example NAME."""
    print_source(read_example(name).text)


DEFAULT_EXAMPLE: Final = "hello"

GITIGNORE: Final = """\
.venv/
__pycache__/
# The data of embedded NATS and Postgres, with `--home .noetl`
.noetl/
"""

README: Final = """\
# {name}

{summary}

{needs}```sh
noetl-stream playbook check playbooks/{name}.yaml
{run}
noetl-stream execution list
```

Expect: {expect}

`noetl-stream example list` lists more examples, `noetl-stream example show NAME` prints one.
"""

NEEDS: Final = """\
It needs:

```text
{needs}
```

Then:

"""


def _names(context: click.Context, parameter: click.Parameter, beginning: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in example_names() if name.startswith(beginning)]


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--example",
    "name",
    metavar="NAME",
    default=DEFAULT_EXAMPLE,
    show_default=True,
    shell_complete=_names,
    help="Example to start from; see `noetl-stream example list`.",
)
def init(folder: Path, name: str) -> None:
    """Create a project in DIR: an example playbook, a README.md and a .gitignore.

    DIR defaults to the current folder, and is created if needed. Existing files are never overwritten: if one of the
    files exists, nothing is written. Prints the path of each new file.
    """
    found = read_example(name)
    hint = "choose another DIR, or print only the playbook: `noetl-stream example show NAME`"
    write_project(folder, _project(found), hint=hint)
    where = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    say(f"next: {where}{found.run.splitlines()[0]}", err=True)


def _project(example: Example) -> Mapping[str, str]:
    """The text of each file, by its path in the project."""
    needs = NEEDS.format(needs=example.needs) if example.needs else ""
    return {
        f"{PROJECT_FOLDER}/{example.name}.yaml": example.text,
        **example.files,
        "README.md": README.format(**{**example._asdict(), "needs": needs}),
        ".gitignore": GITIGNORE,
    }

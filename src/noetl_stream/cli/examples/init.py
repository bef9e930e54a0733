"""``noetl-stream init``: a small project to start from."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from noetl_stream.cli.examples.library import PROJECT_FOLDER, Example, example_names, read_example, read_example_file
from noetl_stream.errors import UsageError

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
    help="Example to start from, of `noetl-stream example list`.",
)
def init(folder: Path, name: str) -> None:
    """Make a project in DIR: an example playbook, a README.md and a .gitignore.

    DIR defaults to the current folder, and is created if it does not exist. No file is overwritten: if one of
    them exists, nothing is written. Prints the path of each file written, one a line.
    """
    example = read_example(name)
    _write(folder, _project(example))
    where = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    click.echo(f"next: {where}{example.run.splitlines()[0]}", err=True)


def _project(example: Example) -> Mapping[str, str]:
    """The text of each file, by its path in the project."""
    needs = NEEDS.format(needs=example.needs) if example.needs else ""
    return {
        f"{PROJECT_FOLDER}/{example.name}.yaml": example.text,
        **{f"{PROJECT_FOLDER}/{file}": read_example_file(file) for file in example.files},
        "README.md": README.format(**{**example._asdict(), "needs": needs}),
        ".gitignore": GITIGNORE,
    }


def _write(folder: Path, project: Mapping[str, str]) -> None:
    """Writes all files or, where one exists, none."""
    existing = [str(folder / path) for path in project if os.path.lexists(folder / path)]
    if existing:
        raise UsageError(
            f"nothing was written, because of files that exist: {', '.join(existing)}",
            hint="name another DIR, or print a playbook alone with `noetl-stream example show NAME`",
        )
    for path, text in project.items():
        file = folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as written:
                written.write(text)
        except OSError as error:
            raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
        click.echo(file)

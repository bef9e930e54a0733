"""``noetl-stream example``."""

from __future__ import annotations

import click
import msgspec

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_documents
from noetl_stream.cli.examples.library import example_names, read_example


class ExampleDocument(msgspec.Struct, frozen=True):
    """What ``-o json`` shows of an example."""

    name: str
    description: str
    files: list[str]


@click.group()
def example() -> None:
    """List the example playbooks, or show one.

    \b
    They come with the program. `noetl-stream init --example NAME` makes a project of one.
    """


@example.command("list")
@form_option()
def list_examples(output: str) -> None:
    """List the examples, by name."""
    found = [read_example(name) for name in example_names()]
    documents = [ExampleDocument(one.name, one.description, list(one.files)) for one in found]
    print_documents(documents, output, columns_of("name", "description"), "name")


@example.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the playbook NAME as YAML."""
    click.echo(read_example(name).text, nl=False)

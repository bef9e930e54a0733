"""``noetl-stream playbook graph``: the workflow as a picture."""

from __future__ import annotations

import click

from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json, print_source
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.playbook.catalog import texts_of
from noetl_stream.cli.playbook.playbook_source import runnable_plan


@click.command()
@click.argument("playbook", metavar="PATH[@VERSION]|FILE")
@output_option("mermaid", "dot", "svg", "json")
@target_options
def graph(playbook: str, output: str, target: Target) -> None:
    """Draw the steps of a playbook and the arcs between them.

    The entry has a thick border, a step that joins a hexagon or square corners. Arcs for failures are dashed; what no
    run reaches is grey. `-o svg` is a picture for a browser, `-o dot` for Graphviz, `-o mermaid` for Markdown.
    """
    from noetl_stream.playbook.drawing import dot, graph_of, mermaid
    from noetl_stream.playbook.svg import svg

    (text,) = texts_of(target, [playbook])
    drawn = graph_of(runnable_plan(text.name, text.source))
    if output == "json":
        print_json(drawn.to_json())
    else:
        print_source({"mermaid": mermaid, "dot": dot, "svg": svg}[output](drawn))

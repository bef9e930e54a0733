"""The document of a playbook's graph, from the model that drawings are made of."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict

from noetl_stream.playbook.drawing import Graph, drawable_part, graph_of
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.operations.reading.graphs import ArcDocument, GraphDocument, StepNodeDocument
from noetl_stream.ports.operations.verbs import document_from, document_of


def graph_document(plan: Plan) -> GraphDocument:
    graph = graph_of(plan)
    nodes = [document_of(asdict(node), StepNodeDocument) for node in graph.nodes]
    return GraphDocument([node.step for node in nodes], list(_arcs(plan, graph)), graph.path, graph.digest, nodes)


def draft_document(draft: Plan) -> GraphDocument | None:
    """The graph of a plan with errors, as far as it can be drawn."""
    plan = drawable_part(draft)
    return None if plan is None else graph_document(plan)


def _arcs(plan: Plan, graph: Graph) -> Iterator[ArcDocument]:
    edges = iter(graph.edges)
    for step in plan.steps.values():
        for index, arc in enumerate(step.arcs):
            edge = next(edges)
            is_else = index > 0 and arc.guard is None and step.routing == "exclusive"
            yield document_from(
                ArcDocument, edge, source=step.name, to=arc.step, is_else=is_else, index=index, line=arc.line
            )

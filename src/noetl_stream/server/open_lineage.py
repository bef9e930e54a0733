"""OpenLineage 2-0-2 run events of executions, and of tasks that read or write files and tables.

A playbook is a job; an execution is a run of that job. Each attempt of a task is a run of its own, with the execution
as its parent. Facets hold the columns, row count, size and checksum of a file or table. A run that is sent again has
the same id.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from noetl_stream import __version__
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import ExecutionFinished, ExecutionStarted, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Dataset, ErrorInfo, Outcome
from noetl_stream.ports.stores.fed_events import FedEvent
from noetl_stream.sealing.data_references import DataReference, parts_of

NAMESPACE: Final = "noetl-stream"
"""The OpenLineage namespace of jobs, and of stored files and tables."""

PRODUCER: Final = f"https://github.com/noetl/noetl-stream/tree/v{__version__}"
SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS: Final = "https://openlineage.io/spec/facets"
MAX_FIELDS: Final = 1_000
MAX_DATASETS: Final = 1_000
"""The maximum number of columns of a table, and of files of a run, in an event."""

_ENDS: Final = {"completed": "COMPLETE", "failed": "FAIL", "cancelled": "ABORT"}
_KINDS: Final = {kind.event_name(): kind for kind in (ExecutionStarted, ExecutionFinished, TaskProcessed)}


def run_events_of(fed: FedEvent, step: str = "") -> Iterator[dict[str, Any]]:
    """The run events for an event of the feed. Most events have none.

    Args:
        step: The step of the task, for an event of a task.
    """
    event = fed.event
    kind = None if event is None else _KINDS.get(event.name)
    if event is None or kind is None:
        return
    fact = codec.decode_as(kind, event.data)
    at = iso(event.at_ms)
    if isinstance(fact, TaskProcessed):
        yield from _of_task(fed, step, fact, at)
        return
    job = _job(fed.path, "PLAYBOOK")
    if isinstance(fact, ExecutionStarted):
        yield _event("START", at, fed.execution_id, job)
    elif isinstance(fact, ExecutionFinished):
        yield _event(_ENDS.get(fact.status, "OTHER"), at, fed.execution_id, job, _failure(fact.outcome.error))


def _of_task(fed: FedEvent, step: str, fact: TaskProcessed, at: str) -> Iterator[dict[str, Any]]:
    outcome, event = fact.outcome, fed.event
    if event is None or not (outcome.read or outcome.written or outcome.datasets):
        return
    run_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{fed.execution_id}/{event.position}"))
    job = _job(".".join(dict.fromkeys(filter(None, (fed.path, step, fact.task)))), "TASK")
    parent = {
        "parent": _facet(
            "1-2-0/ParentRunFacet",
            run={"runId": fed.execution_id},
            job={"namespace": NAMESPACE, "name": fed.path},
        )
    }
    yield _event("START", outcome.meta.started_at or at, run_id, job, parent)
    ended = "COMPLETE" if outcome.status == "ok" else "FAIL"
    yield {
        **_event(ended, outcome.meta.ended_at or at, run_id, job, parent | _failure(outcome.error)),
        "inputs": [*map(_dataset, outcome.read[:MAX_DATASETS]), *_elsewhere(outcome, written=False)],
        "outputs": [*_outputs(outcome), *_elsewhere(outcome, written=True)],
    }


def _elsewhere(outcome: Outcome, *, written: bool) -> list[dict[str, Any]]:
    return [
        {"namespace": one.namespace, "name": one.name, **_loaded(one, outcome.read)}
        for one in outcome.datasets
        if one.written == written
    ]


def _loaded(one: Dataset, read: Sequence[DataReference]) -> dict[str, Any]:
    """The facets of the columns that were loaded, each from the column of its name in the one table that was read."""
    columns = one.columns[:MAX_FIELDS]
    if not columns:
        return {}
    facets = {"schema": _schema([{"name": name} for name in columns])}
    if len(read) == 1 and read[0].columns is not None:
        source = {"namespace": NAMESPACE, "name": _name_of(read[0])}
        by_name = [{"type": "DIRECT", "subtype": "IDENTITY"}]
        fields = {name: {"inputFields": [{**source, "field": name, "transformations": by_name}]} for name in columns}
        facets["columnLineage"] = _facet("1-2-0/ColumnLineageDatasetFacet", fields=fields)
    return {"facets": facets}


def _outputs(outcome: Outcome) -> list[dict[str, Any]]:
    found = []
    for one in outcome.written[:MAX_DATASETS]:
        counts = {"size": one.size} if one.rows is None else {"size": one.size, "rowCount": one.rows}
        facet = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", **counts)
        found.append({**_dataset(one), "outputFacets": {"outputStatistics": facet}})
    return found


def _dataset(reference: DataReference) -> dict[str, Any]:
    """The dataset of a stored file or table."""
    facets = {"version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=reference.checksum)}
    if reference.columns is not None:
        fields = [{"name": one.name, "type": one.type} for one in reference.columns[:MAX_FIELDS]]
        facets["schema"] = _schema(fields)
    return {"namespace": NAMESPACE, "name": _name_of(reference), "facets": facets}


def _name_of(reference: DataReference) -> str:
    """The name of a stored file or table. It has its unique key prefix, so that reads and the write share it."""
    parts = parts_of(reference.key)
    called = reference.name or ("file" if reference.columns is None else "table")
    return f"{'' if parts is None else parts.prefix}{called}"


def _schema(fields: Sequence[dict[str, str]]) -> dict[str, Any]:
    return _facet("1-2-0/SchemaDatasetFacet", fields=fields)


def _event(
    kind: str, at: str, run_id: str, job: dict[str, Any], facets: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": at,
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run_id, "facets": facets or {}},
        "job": job,
    }


def _job(name: str, kind: str) -> dict[str, Any]:
    facet = _facet("2-0-4/JobTypeJobFacet", processingType="BATCH", integration="NOETL", jobType=kind)
    return {"namespace": NAMESPACE, "name": name, "facets": {"jobType": facet}}


def _failure(error: ErrorInfo | None) -> dict[str, Any]:
    if error is None:
        return {}
    message = f"{error.kind}: {error.message}"
    return {"errorMessage": _facet("1-0-1/ErrorMessageRunFacet", message=message, programmingLanguage="PYTHON")}


def _facet(at: str, **fields: Any) -> dict[str, Any]:
    name = at.partition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{_FACETS}/{at}.json#/$defs/{name}", **fields}

"""The options of ``noetl-stream execution start --each``: an execution for each row of a file of workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from noetl_stream.cli.base.options import bundled
from noetl_stream.errors import UsageError
from noetl_stream.model.ids import is_uuid7

IN_FLIGHT: Final = 10
MOST_IN_FLIGHT: Final = 1_000


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The options of a batch.

    Attributes:
        rows: JSONL, a workload each; ``-`` is stdin.
        id: Of a batch that is to go on; ``None`` for a new one.
        results: Gets the results; ``None`` is stdout.
    """

    rows: Path
    in_flight: int
    id: str | None
    results: Path | None


def _batch(rows: Path | None, in_flight: int | None, batch: str | None, results: Path | None) -> Batch | None:
    if rows is None:
        given = {"--in-flight": in_flight, "--batch": batch, "--results": results}
        for option, value in given.items():
            if value is not None:
                raise UsageError(f"{option} needs --each")
        return None
    if batch is not None and not is_uuid7(batch):
        raise UsageError(f"--batch {batch!r} is not a batch id", hint="the interrupted command has printed it")
    return Batch(rows, in_flight or IN_FLIGHT, batch, results)


batch_options = bundled(
    "batch",
    _batch,
    [
        click.option(
            "--each",
            "rows",
            metavar="ROWS",
            type=click.Path(path_type=Path),
            help="Start an execution for each line of this JSONL file, a workload merged over the others; - is stdin.",
        ),
        click.option(
            "--in-flight",
            type=click.IntRange(1, MOST_IN_FLIGHT),
            help=f"How many executions of --each run at once. Default: {IN_FLIGHT}.",
        ),
        click.option("--batch", metavar="ID", help="Go on with this batch: nothing of it is started twice."),
        click.option(
            "--results",
            metavar="FILE",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write the results there, not to stdout. With --batch, only those that are not in it.",
        ),
    ],
)

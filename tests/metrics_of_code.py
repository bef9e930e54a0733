"""The metrics that the code defines."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import noetl_stream
from noetl_stream.telemetry.measures import Metric


def metrics() -> dict[str, Metric]:
    """Every metric of the code, by the name that it is shown under."""
    found: dict[str, Metric] = {}
    package = Path(noetl_stream.__path__[0])
    for file in sorted(package.rglob("*.py")):
        if "Metric(" in file.read_text():
            module = import_module(".".join(("noetl_stream", *file.relative_to(package).with_suffix("").parts)))
            found |= {shown_name(one): one for one in vars(module).values() if isinstance(one, Metric)}
    return found


def shown_name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.kind == "counter" else metric.name

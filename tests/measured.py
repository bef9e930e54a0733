"""What metrics show, as numbers by name and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from noetl_stream.telemetry.measures import Reading
from noetl_stream.telemetry.status_server import exposition


def samples_in(text: str) -> dict[str, float]:
    """Each sample, under its name and the values of its labels, separated by spaces."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def samples_of(readings: Iterable[Reading]) -> dict[str, float]:
    """What a scraper sees of the readings."""
    return samples_in(exposition([*readings], "")[0].decode())


def unmoved(before: Mapping[str, float], after: Mapping[str, float], *names: str) -> list[str]:
    """Those of these samples that did not grow."""
    return [name for name in names if after.get(name, 0.0) <= before.get(name, 0.0)]

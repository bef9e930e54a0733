"""Readings in the text of Prometheus or OpenMetrics, whichever the scraper accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from noetl_stream.telemetry.measures import BOUNDS_S, Durations, Reading

FAMILIES: Final[Mapping[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
SHOWN_BOUNDS: Final = (*map(str, map(float, BOUNDS_S)), "+Inf")


def exposition(readings: Sequence[Reading], accept: str) -> tuple[bytes, str]:
    """Renders readings, and this process's use of its machine, as text; also returns its content type.

    Args:
        accept: The header ``Accept`` of the scrape.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(readings))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collected(Collector):
    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        return map(_family, self._readings)


def _family(reading: Reading) -> Family:
    metric = reading.metric
    family: Any = FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
    for labels, value in reading.values.items():
        if isinstance(value, Durations):
            family.add_metric(labels, _buckets(value), value.sum_s)
        else:
            family.add_metric(labels, value)
    return cast(Family, family)


def _buckets(durations: Durations) -> list[tuple[Any, ...]]:
    """Yields bounds and counts of a histogram; with exemplars, which only OpenMetrics shows."""
    buckets: list[tuple[Any, ...]] = [*zip(SHOWN_BOUNDS, accumulate(durations.counts), strict=True)]
    for place, (trace_id, span_id, value_s, at_s) in durations.exemplars.items():
        buckets[place] += (Exemplar({"trace_id": trace_id, "span_id": span_id}, value_s, at_s),)
    return buckets

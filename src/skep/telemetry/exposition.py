"""The Prometheus exposition of all workers of an instance.

Counters and histograms are sums over the workers; gauges are exposed per worker, because a sum
would hide a single overloaded one. The broker adds families with Queen's names.
"""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from skep.telemetry.families import FAMILIES, Family
from skep.telemetry.snapshots import Labels, Snapshot, sum_counts, sum_distributions


class _Prepared(Collector):
    """Ready-made families."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def expose(snapshots: Sequence[Snapshot], further: Sequence[Metric] = ()) -> bytes:
    """Render the snapshots of an instance's workers, and further families."""
    registry = CollectorRegistry()
    registry.register(_Prepared([*_own_families(snapshots), *further]))
    return generate_latest(registry)


def counter(name: str, text: str, labels: Sequence[str], values: dict[Labels, float]) -> Metric:
    """Make a family of counters; `_total` is added to the name."""
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def gauge(name: str, text: str, labels: Sequence[str], values: dict[Labels, float]) -> Metric:
    """Make a family of gauges."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: dict[Labels, float]) -> Metric:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _own_families(snapshots: Sequence[Snapshot]) -> list[Metric]:
    counters = sum_counts(each.counters for each in snapshots)
    histograms = sum_distributions(each.histograms for each in snapshots)
    families: list[Metric] = []
    for family in FAMILIES:
        name = family.name
        if family.kind == "counter":
            families.append(counter(name, family.text, family.labels, counters.get(name, {})))
        elif family.kind == "histogram":
            families.append(_histogram(family, histograms.get(name, {})))
        else:
            by_worker: dict[Labels, float] = {
                (str(each.worker), *labels): value
                for each in snapshots
                for labels, value in each.gauges.get(name, {}).items()
            }
            families.append(gauge(name, family.text, ("worker", *family.labels), by_worker))
    return families


def _histogram(family: Family, values: dict[Labels, list[float]]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.text, labels=family.labels)
    bounds = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
    for labels, (*counts, total) in values.items():
        below = 0.0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip(bounds, counts, strict=True):
            below += count
            buckets.append((bound, below))
        metric.add_metric(labels, buckets, total)
    return metric

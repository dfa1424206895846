"""Spans and metrics with the messaging conventions of OpenTelemetry.

Imported only if tracing is enabled; its packages are an extra. Spans: `send q` for a push,
`receive q` for a pop that returned messages, with a link to each of their contexts, `settle q` for
acknowledgments. Messages carry the context of the span that sent them.

The conventions are still in development. A span with several queues names none of them.
"""

import re
from collections.abc import Mapping, Sequence
from time import perf_counter, time_ns
from typing import Any, Final

import msgspec
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from skep.model.wire import QUEUE_MODE, PushItem
from skep.telemetry import tracing

SYSTEM: Final = "skep"
DURATION_BOUNDS_S: Final = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0
)  # fmt: skip
"""The bounds of the conventions."""

EXPORT_TIMEOUT_S: Final = 2
"""How long a collector may take; the shutdown waits for it."""

_QUEUE_NAME: Final = re.compile(rb'"queueName":("(?:[^"\\]|\\.)*")')
_MESSAGE: Final = b'{"id":"'

_context = TraceContextTextMapPropagator()


class OtelTracing(tracing.Propagation):
    """Records pushes, pops and acknowledgments."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        self._tracer: Final = tracers.get_tracer("skep")
        meter = meters.get_meter("skep")
        self._durations: Final = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of messaging operations.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS_S,
        )
        self._sent: Final = meter.create_counter(
            "messaging.client.sent.messages", unit="{message}", description="Messages pushed."
        )
        self._consumed: Final = meter.create_counter(
            "messaging.client.consumed.messages", unit="{message}", description="Messages popped."
        )

    def sending(self, carrier: tracing.Carrier, items: Sequence[PushItem]) -> tracing.Ended:
        """Start the span of a push; its items carry the context."""
        attributes = _attributes("send", _only({item.queue for item in items}))
        attributes["messaging.batch.message_count"] = len(items)
        span = self._begin(carrier, attributes, SpanKind.PRODUCER)
        context: dict[str, str] = {}
        _context.inject(context, set_span_in_context(span, Context()))
        tracing.give_context(items, context)
        began = perf_counter()

        def end(error: str | None) -> None:
            self._end(span, attributes, began, error)
            if error is None:
                self._sent.add(len(items), _labels(attributes))

        return end

    def receiving(
        self, carrier: tracing.Carrier, queue: str, group: str, deliver: tracing.Deliver
    ) -> tracing.Deliver:
        """Record the span of a pop when it returns messages."""
        began, began_ns = perf_counter(), time_ns()

        def deliver_and_tell(body: bytes | None) -> bool:
            is_delivered = deliver(body)
            if body is not None and is_delivered:
                attributes = _attributes("receive", queue, group)
                attributes["messaging.batch.message_count"] = body.count(_MESSAGE)
                links = _links(tracing.contexts_in(body))
                span = self._begin(carrier, attributes, SpanKind.CLIENT, links, began_ns)
                self._end(span, attributes, began, None)
                self._consumed.add(body.count(_MESSAGE), _labels(attributes))
            return is_delivered

        return deliver_and_tell

    def settling(self, carrier: tracing.Carrier, group: str | None, count: int) -> tracing.Settled:
        """Record the span of acknowledgments when their queue is known."""
        began, began_ns = perf_counter(), time_ns()

        def tell(results: bytes | None, error: str | None) -> None:
            names = {each[1] for each in _QUEUE_NAME.finditer(results or b"")}
            queue = _only({msgspec.json.decode(name) for name in names})
            attributes = _attributes("settle", queue, group)
            attributes["messaging.batch.message_count"] = count
            span = self._begin(carrier, attributes, SpanKind.CLIENT, began_ns=began_ns)
            self._end(span, attributes, began, error)

        return tell

    def _begin(
        self,
        carrier: tracing.Carrier,
        attributes: dict[str, Any],
        kind: SpanKind,
        links: Sequence[Link] = (),
        began_ns: int | None = None,
    ) -> Span:
        operation = attributes["messaging.operation.name"]
        queue = attributes.get("messaging.destination.name")
        return self._tracer.start_span(
            f"{operation} {queue}" if queue else operation,
            context=_context.extract(dict(carrier), Context()),
            kind=kind,
            attributes=attributes,
            links=links,
            start_time=began_ns,
        )

    def _end(
        self, span: Span, attributes: Mapping[str, Any], began: float, error: str | None
    ) -> None:
        labels = _labels(attributes)
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
            labels["error.type"] = error
        span.end()
        self._durations.record(perf_counter() - began, labels)


class OtelExport:
    """Sends spans and metrics to a collector, in its own threads."""

    def __init__(self, endpoint: str, *, version: str, worker: int, sample_ratio: float) -> None:
        resource = Resource.create(
            {
                "service.name": SYSTEM,
                "service.version": version,
                "service.instance.id": f"worker-{worker}",
            }
        )
        base = endpoint.rstrip("/")
        self._tracers: Final = SdkTracerProvider(
            resource=resource, sampler=ParentBased(TraceIdRatioBased(sample_ratio))
        )
        spans = OTLPSpanExporter(f"{base}/v1/traces", timeout=EXPORT_TIMEOUT_S)
        self._tracers.add_span_processor(BatchSpanProcessor(spans))
        metrics = OTLPMetricExporter(f"{base}/v1/metrics", timeout=EXPORT_TIMEOUT_S)
        reader = PeriodicExportingMetricReader(metrics)
        self._meters: Final = SdkMeterProvider([reader], resource=resource)
        self.tracing: Final = OtelTracing(self._tracers, self._meters)

    def close(self) -> None:
        """Send the rest. Blocks for up to the export timeout."""
        self._tracers.shutdown()
        self._meters.shutdown()


def _attributes(operation: str, queue: str | None, group: str | None = None) -> dict[str, Any]:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if queue:
        attributes["messaging.destination.name"] = queue
    if group and group != QUEUE_MODE:
        attributes["messaging.consumer.group.name"] = group
    return attributes


def _labels(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the labels of metrics: attributes with few different values."""
    return {
        name: value for name, value in attributes.items() if name != "messaging.batch.message_count"
    }


def _only(names: set[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None


def _links(contexts: Sequence[str]) -> list[Link]:
    spans = (
        get_current_span(_context.extract({tracing.TRACEPARENT: text}, Context()))
        for text in contexts
    )
    return [Link(span.get_span_context()) for span in spans]

"""Spans and metrics of jobs for OpenTelemetry.

    create <job>     a chain is started, in the trace of the process that starts it
    process <job>    one attempt; follows the span that created the job or the attempt it continues,
                     and is linked to the chains that the job waited for

Needs the package opentelemetry-api, and does nothing visible without an SDK. Attempts of one chain
are in one trace, which begins with the span that started it.
"""

from asyncio import CancelledError
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from skep.jobs.declare.context import JobFacts
from skep.jobs.errors import Fail, OwnershipLost, Reschedule
from skep.jobs.worker.tracing import read_context, spell_context

_context = TraceContextTextMapPropagator()

SYSTEM: Final = "skep"


class OtelTracing:
    """Tells OpenTelemetry about chains that start and about attempts."""

    def __init__(
        self, tracers: TracerProvider | None = None, meters: MeterProvider | None = None
    ) -> None:
        self._tracer: Final = (tracers or get_tracer_provider()).get_tracer("skep.jobs")
        meter = (meters or get_meter_provider()).get_meter("skep.jobs")
        self._durations: Final = meter.create_histogram(
            "messaging.process.duration", unit="s", description="Duration of attempts of jobs."
        )
        self._started: Final = meter.create_counter(
            "skep.jobs.chains.started", unit="{chain}", description="Chains that were started."
        )

    def starting(self, job: str, chain_id: UUID) -> str | None:
        """Make the span of a start, and return its context."""
        attributes = _attributes("create", job) | {"skep.chain.id": str(chain_id)}
        span = self._tracer.start_span(
            f"create {job}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        self._started.add(1, _attributes("create", job))
        span.end()
        return _kept(span)

    @contextmanager
    def attempting(self, facts: JobFacts, awaited: Sequence[str]) -> Generator[str | None]:
        """Make the span of an attempt, in which its handler runs."""
        attributes = _attributes("process", facts.name) | {
            "skep.chain.id": str(facts.chain_id),
            "skep.job.id": str(facts.job_id),
            "skep.job.position": facts.position,
            "skep.job.attempt": facts.attempt,
        }
        span = self._tracer.start_span(
            f"process {facts.name}",
            context=_context.extract(read_context(facts.trace), Context()),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=_links(awaited),
        )
        labels = _attributes("process", facts.name)
        began = perf_counter()
        try:
            with use_span(span, record_exception=False, set_status_on_exception=False):
                yield _kept(span)
        except BaseException as error:
            labels["error.type"] = type(error).__name__
            _mark(span, error)
            raise
        finally:
            span.end()
            self._durations.record(perf_counter() - began, labels)


def _mark(span: Span, error: BaseException) -> None:
    """Record in a span why its attempt did not end the job; running again later is no failure."""
    span.set_attribute("error.type", type(error).__name__)
    if isinstance(error, Reschedule | OwnershipLost | CancelledError):
        return
    if not isinstance(error, Fail):
        span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _kept(span: Span) -> str | None:
    headers: dict[str, str] = {}
    _context.inject(headers, set_span_in_context(span, Context()))
    return spell_context(headers.get("traceparent"), headers.get("tracestate"))


def _attributes(operation: str, job: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": job,
    }


def _links(contexts: Sequence[str]) -> list[Link]:
    carriers: list[Mapping[str, str]] = [read_context(text) for text in contexts]
    spans = (get_current_span(_context.extract(carrier, Context())) for carrier in carriers)
    return [Link(span.get_span_context()) for span in spans]

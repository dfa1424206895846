"""The context of a trace goes through chains, steps, blockers and workers."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from skep.jobs import Ctx, JobClient, JobTypes, OtelTracing, Worker
from skep.jobs.client.inspection import ChainFilter, JobFilter
from skep.jobs.errors import ChainFailed
from skep.jobs.worker.tracing import Propagation, read_context, spell_context
from tests.jobs.support.shop import (
    Basket,
    Order,
    break_down,
    charge,
    in_thread,
    later,
    price,
    shop,
    total,
)

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Telescope:
    """Everything that was told to OpenTelemetry."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])
        self.tracing = OtelTracing(self.tracers, self.meters)

    def spans(self, name):
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name):
        (span,) = self.spans(name)
        return span

    def metric_names(self):
        data = self.reader.get_metrics_data()
        return {
            metric.name
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def telescope():
    telescope = Telescope()
    yield telescope
    telescope.tracers.shutdown()
    telescope.meters.shutdown()


@pytest.fixture
def traced(stack, database_url, telescope):
    """Start a client and a worker that tell the telescope; return the client."""

    async def traced():
        client = JobClient(database_url, types=[shop], tracing=telescope.tracing)
        await stack.enter_async_context(client)
        worker = Worker(client, [shop], poll_s=1.0)
        await worker.start()
        stack.push_async_callback(worker.stop, grace_s=0.2)
        return client

    return traced


def trace_id(span):
    return span.get_span_context().trace_id


async def test_all_attempts_of_a_chain_are_in_the_trace_of_who_started_it(traced, telescope):
    client = await traced()
    tracer = telescope.tracers.get_tracer("test")
    with tracer.start_as_current_span("request") as request:
        chain = await client.start(charge, Order(7))
    await chain.result(timeout=20)

    create, first, second = (
        telescope.span(name) for name in ("create charge", "process charge", "process ship")
    )
    assert {trace_id(span) for span in (create, first, second)} == {trace_id(request)}
    assert create.parent.span_id == request.get_span_context().span_id
    assert first.parent.span_id == create.get_span_context().span_id
    assert second.parent.span_id == first.get_span_context().span_id
    assert second.attributes["skep.chain.id"] == str(chain.id)
    assert second.attributes["skep.job.position"] == 1
    assert {"messaging.process.duration", "skep.jobs.chains.started"} <= telescope.metric_names()


async def test_a_job_is_linked_to_the_chains_it_waited_for(traced, telescope):
    client = await traced()
    parts = [await client.start(price, n) for n in (1, 2)]
    whole = await client.start(total, Basket("all", [part.ref for part in parts]))
    assert await whole.result(timeout=20) == 3

    links = {link.context.trace_id for link in telescope.span("process total").links}

    assert links == {trace_id(span) for span in telescope.spans("create price")}


async def test_a_failed_attempt_is_an_error_and_one_that_comes_back_is_none(traced, telescope):
    client = await traced()
    with pytest.raises(ChainFailed):
        await (await client.start(break_down, "oh")).result(timeout=20)
    await (await client.start(later, 0.0)).result(timeout=20)

    failed = telescope.spans("process break")
    assert [span.status.is_ok for span in failed] == [False] * 3
    assert {span.attributes["error.type"] for span in failed} == {"RuntimeError"}
    assert failed[0].events[0].name == "exception"
    assert all(span.status.is_ok for span in telescope.spans("process later"))


async def test_a_handler_in_a_thread_runs_inside_its_span(traced, telescope, stack, database_url):
    seen = []
    types = JobTypes("threads")

    @types.sync_job("look")
    def look(ctx: Ctx[None, None]) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    client = await traced()
    worker = Worker(client, [types], poll_s=1.0)
    await worker.start()
    stack.push_async_callback(worker.stop, grace_s=0.2)
    await (await client.start(look, None)).result(timeout=20)

    assert seen == [telescope.span("process look").get_span_context().span_id]


async def test_without_opentelemetry_a_context_is_handed_on(client, start_worker, sql):
    types = JobTypes("parents")

    @types.job("start another")
    async def start_another(ctx: Ctx[None, str]) -> str:
        return str((await client.start(in_thread, 1)).id)

    await start_worker(types, shop)
    chain = await client.start(charge, Order(1), after=None)
    await chain.result(timeout=20)
    parent = await client.start(start_another, None, tx=None)
    child = await parent.result(timeout=20)
    assert child
    rows = await client.inspection.chains(ChainFilter())
    assert {row.trace for row in rows.items} == {None}

    await sql.execute("update skep.job_type set is_paused = true where name = 'charge'")
    traced = await client.start(charge, Order(2))
    await sql.execute("update skep.job set trace = $1 where id = $2", PARENT, traced.id)
    await client.resume("charge")
    await traced.result(timeout=20)

    jobs = await client.inspection.jobs(JobFilter(chain_id=traced.id))
    assert {job.trace for job in jobs.items} == {PARENT}


async def test_what_an_attempt_starts_has_its_context():
    propagation = Propagation()
    facts = type("Facts", (), {"trace": PARENT})()
    assert propagation.starting("x", None) is None

    with propagation.attempting(facts, []) as context:
        assert context == propagation.starting("x", None) == PARENT
        assert await asyncio.to_thread(propagation.starting, "x", None) == PARENT

    assert propagation.starting("x", None) is None


@pytest.mark.parametrize(
    ("parent", "state", "kept"),
    [
        (None, "a=b", None),
        (PARENT, None, PARENT),
        (PARENT, "a=b", f"{PARENT}\na=b"),
        (PARENT, "a" * 1000, PARENT),
    ],
)
def test_a_context_is_kept_as_one_text(parent, state, kept):
    assert spell_context(parent, state) == kept
    headers = read_context(kept)
    assert headers.get("traceparent") == (parent if kept else None)
    assert headers.get("tracestate") == (state if kept and "\n" in kept else None)

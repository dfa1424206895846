"""The context of OpenTelemetry goes out with a push and comes in with the message."""

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from skep.client import AsyncClient

PROGRAM = """
import sys
sys.modules["opentelemetry"] = None
from skep.client import Client
Client()
try:
    Client(telemetry=True)
except ImportError:
    print("asked for, and not there")
"""


@pytest.fixture
def tracer(monkeypatch):
    provider = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield provider.get_tracer("test")
    provider.shutdown()


async def test_a_handler_runs_in_a_span_of_the_trace_that_pushed(broker, queue, tracer):
    spans = []
    async with AsyncClient(broker.url, telemetry=True) as client:
        with tracer.start_as_current_span("order") as order:
            await client.push(queue, 1, headers={"source": "web"})
            async with client.buffer() as buffer:
                await buffer.push(queue, 2)
            await client.push_many(queue, [3])

        @client.worker(queue, group="g", idle_s=0)
        async def handle(message):
            spans.append((message.headers, trace.get_current_span()))

        await handle.run()

    trace_id = order.get_span_context().trace_id
    assert [span.get_span_context().trace_id for _, span in spans] == [trace_id] * 3
    assert spans[0][1].parent.span_id == order.get_span_context().span_id
    assert spans[0][1].name == f"process {queue}"
    assert spans[0][0]["source"] == "web"
    assert [set(headers) for headers, _ in spans[1:]] == [{"traceparent"}] * 2


async def test_nothing_is_added_by_those_who_did_not_ask(queen, queue, tracer):
    with tracer.start_as_current_span("order"):
        await queen.push(queue, 1)

    (message,) = await queen.pop(queue)

    assert message.headers is None


def test_opentelemetry_is_needed_only_by_those_who_ask_for_it():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == "asked for, and not there\n", done.stderr

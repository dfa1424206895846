"""Trace context through a broker, and spans that arrive at a collector."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def collector():
    """A collector of OpenTelemetry that keeps what it gets: path and body."""
    received = SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            received.put((self.path, self.headers.get("content-encoding"), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server.received = received
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module", params=["off", "propagate"])
def broker(start_broker, request):
    with start_broker("--workers", "1", tracing=request.param) as broker:
        broker.carries = request.param == "propagate"
        yield broker


async def push(client, queue, item=None):
    body = json.dumps({"items": [{"queue": queue, "payload": 1, **(item or {})}]}).encode()
    answer = await client.call("POST", "/api/v1/push", body, f"traceparent: {PARENT}\r\n")
    assert answer.status == 201


async def test_the_context_of_a_request_travels_with_its_messages_if_that_is_wanted(
    client, queue, broker
):
    await push(client, queue)
    [message] = await client.pop(queue)

    assert message.get("headers") == ({"traceparent": PARENT} if broker.carries else None)


async def test_the_context_a_producer_gives_a_message_always_travels(client, queue):
    own = PARENT.replace("b7", "c8")
    await push(client, queue, {"headers": {"traceparent": own}})

    [message] = await client.pop(queue)

    assert message["headers"] == {"traceparent": own}


def spans_of(collector):
    """Return the spans that came in so far."""
    spans = []
    while not collector.received.empty():
        path, encoding, body = collector.received.get()
        assert encoding is None
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            spans += [span for resource in request.resource_spans
                      for scope in resource.scope_spans for span in scope.spans]  # fmt: skip
    return spans


def test_defect_54_spans_of_a_message_arrive_at_the_collector(start_broker, collector, arun):
    async def use(broker):
        async with broker.connect() as client:
            await push(client, "orders")
            [message] = await client.pop("orders")
            await client.ack(message)

    endpoint = f"http://127.0.0.1:{collector.server_port}"
    with start_broker("--workers", "1", tracing="otlp", otlp_endpoint=endpoint) as broker:
        arun(asyncio.wait_for(use(broker), 60))
    # What is left is sent when the broker ends.
    spans = {span.name: span for span in spans_of(collector)}

    assert spans.keys() == {"send orders", "receive orders", "settle orders"}
    sent, received = spans["send orders"], spans["receive orders"]
    assert sent.trace_id.hex() == TRACE
    assert [link.span_id for link in received.links] == [sent.span_id]


def test_a_collector_that_is_not_there_does_not_hold_up_messages(start_broker, arun):
    async def use(broker):
        async with broker.connect() as client:
            await push(client, "orders")
            assert len(await client.pop("orders")) == 1

    settings = {"tracing": "otlp", "otlp_endpoint": "http://127.0.0.1:9", "shutdown_grace_s": 15}
    with start_broker("--workers", "1", **settings) as broker:
        arun(asyncio.wait_for(use(broker), 60))

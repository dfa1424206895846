import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from skep.model.envelopes import build_envelope
from skep.model.limits import HEADERS_MAX
from skep.model.wire import QUEUE_MODE, PushItem
from skep.telemetry.otel import OtelTracing
from skep.telemetry.tracing import CONTEXTS_MAX, Propagation, contexts_in, valid_context

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CARRIER = {"traceparent": PARENT, "tracestate": "vendor=1"}


def delivered(*headers):
    """An answer to a poll, with a message for each of the headers."""
    messages = [build_envelope(f"t{n}", b"1", headers=each) for n, each in enumerate(headers)]
    spelled = b",".join(b'{"id":"%d",%b' % (n, each[1:]) for n, each in enumerate(messages))
    return b'{"success":true,"messages":[%b]}' % spelled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        PARENT[:-1],
        PARENT.upper(),
        PARENT.replace(TRACE, "0" * 32),
        PARENT.replace("00-", "ff-", 1),
        f"{PARENT}\n",
    ],
)
def test_a_context_that_is_malformed_is_none(text):
    assert valid_context({"traceparent": text}) == {}


def test_a_context_without_a_sensible_state_goes_without_it():
    assert valid_context(CARRIER) == CARRIER
    assert valid_context({**CARRIER, "tracestate": "x" * 513}) == {"traceparent": PARENT}


def test_messages_carry_the_context_of_their_request_unless_they_have_their_own():
    own = PARENT.replace("b7", "c8")
    items = [
        PushItem("q"),
        PushItem("q", headers={"k": 1}),
        PushItem("q", headers={"traceparent": own}),
    ]

    Propagation().sending(CARRIER, items)(None)

    assert [item.headers for item in items] == [CARRIER, {"k": 1, **CARRIER}, {"traceparent": own}]


def test_a_message_without_room_for_a_context_goes_without():
    full = {f"h{number}": 1 for number in range(HEADERS_MAX)}
    item = PushItem("q", headers=full)

    Propagation().sending(CARRIER, [item])(None)

    assert item.headers == full


def test_without_a_context_nothing_is_touched():
    item = PushItem("q")

    Propagation().sending({}, [item])(None)

    assert item.headers is None


def test_contexts_are_found_in_an_answer_each_once():
    other = PARENT.replace("b7", "c8")

    body = delivered({"a": 1, "traceparent": PARENT}, None, CARRIER, {"traceparent": other})

    assert contexts_in(body) == [PARENT, other]


def test_no_more_contexts_are_found_than_a_span_has_links():
    parents = [f"00-{TRACE}-{number:016x}-01" for number in range(1, CONTEXTS_MAX + 10)]

    assert len(contexts_in(delivered(*({"traceparent": each} for each in parents)))) == CONTEXTS_MAX


@given(st.binary(), st.recursive(st.text() | st.integers(), st.lists))
def test_whatever_an_answer_holds_it_is_only_searched(junk, payload):
    contexts_in(junk)
    assert contexts_in(msgspec.json.encode(payload)) == []


class Telescope:
    """Tracing that a test can look into."""

    def __init__(self):
        self._spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._metrics = InMemoryMetricReader()
        self.tracing = OtelTracing(tracers, MeterProvider([self._metrics]))

    @property
    def span(self):
        [span] = self._spans.get_finished_spans()
        return span

    @property
    def spans(self):
        return self._spans.get_finished_spans()

    def points(self):
        data = self._metrics.get_metrics_data()
        return {
            metric.name: metric.data.data_points
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def telescope():
    return Telescope()


def test_a_push_is_a_span_below_that_of_its_client(telescope):
    items = [PushItem("orders"), PushItem("orders")]

    telescope.tracing.sending(CARRIER, items)(None)

    span = telescope.span
    assert [span.name, span.kind] == ["send orders", SpanKind.PRODUCER]
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.attributes["messaging.destination.name"] == "orders"
    assert span.attributes["messaging.batch.message_count"] == 2
    carried = items[0].headers["traceparent"]
    assert carried == f"00-{TRACE}-{span.context.span_id:016x}-01"


def test_a_push_into_several_queues_names_none_of_them(telescope):
    telescope.tracing.sending({}, [PushItem("a"), PushItem("b")])(None)

    assert telescope.span.name == "send"
    assert "messaging.destination.name" not in telescope.span.attributes


def test_a_push_that_failed_says_so(telescope):
    telescope.tracing.sending({}, [PushItem("a")])("overloaded")

    assert telescope.span.status.status_code is StatusCode.ERROR
    assert telescope.span.attributes["error.type"] == "overloaded"
    points = telescope.points()
    assert "messaging.client.sent.messages" not in points
    [duration] = points["messaging.client.operation.duration"]
    assert duration.attributes["error.type"] == "overloaded"


def test_a_poll_that_got_messages_is_linked_to_whoever_sent_them(telescope):
    deliver = telescope.tracing.receiving({}, "orders", "billing", lambda body: True)

    assert deliver(delivered({"traceparent": PARENT}, None))

    span = telescope.span
    assert [span.name, span.kind] == ["receive orders", SpanKind.CLIENT]
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE]
    assert span.attributes["messaging.consumer.group.name"] == "billing"
    assert span.attributes["messaging.batch.message_count"] == 2
    assert span.end_time >= span.start_time
    [consumed] = telescope.points()["messaging.client.consumed.messages"]
    assert consumed.value == 2


@pytest.mark.parametrize(("body", "is_there"), [(None, True), (delivered(None), False)])
def test_a_poll_that_got_nothing_or_nobody_took_is_no_span(telescope, body, is_there):
    deliver = telescope.tracing.receiving({}, "orders", QUEUE_MODE, lambda _: is_there)

    assert deliver(body) is is_there

    assert telescope.spans == ()


def test_acknowledgments_are_a_span_once_their_queue_is_known(telescope):
    settled = telescope.tracing.settling(CARRIER, QUEUE_MODE, 2)
    assert telescope.spans == ()

    settled(b'{"queueName":"or\\"ders"},{"queueName":"or\\"ders"}', None)

    span = telescope.span
    assert span.name == 'settle or"ders'
    assert f"{span.context.trace_id:032x}" == TRACE
    assert "messaging.consumer.group.name" not in span.attributes


def test_acknowledgments_of_several_queues_name_none_and_errors_are_told(telescope):
    telescope.tracing.settling({}, "g", 2)(b'{"queueName":"a"},{"queueName":null}', None)
    telescope.tracing.settling({}, "g", 2)(b'{"queueName":"a"},{"queueName":"b"}', None)
    telescope.tracing.settling({}, "g", 1)(None, "unavailable")

    assert [span.name for span in telescope.spans] == ["settle a", "settle", "settle"]
    assert telescope.spans[2].attributes["error.type"] == "unavailable"


def test_metrics_are_never_told_apart_by_what_differs_each_time(telescope):
    for count in (1, 2, 3):
        telescope.tracing.sending({}, [PushItem("a")] * count)(None)

    [sent] = telescope.points()["messaging.client.sent.messages"]
    assert sent.value == 6

import pytest

from skep.model.schema_name import Schema, split_schema
from skep.spark.source.columns import schema_of
from skep.spark.source.options import InvalidOption, Subscription, read_options, shape_options
from skep.spark.source.positions import NOTHING, Position, Snapshot

URL = "postgresql://skep@127.0.0.1/skep"
POSITION = Position("7:16384", Snapshot(9, frozenset({4})), NOTHING, 5)


def options(**given):
    return read_options({"url": URL, "queue": "orders", **given})


def test_without_options_everything_there_is_is_read_and_losses_are_errors():
    chosen = options()

    assert (chosen.start, chosen.end, chosen.fail_on_data_loss) == ("earliest", "latest", True)
    assert chosen.subscription == Subscription(("orders",))
    assert chosen.messages_per_trigger is None


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"startingOffsets": "Latest"}, "start", "latest"),
        ({"startingOffsets": str(POSITION)}, "start", POSITION),
        ({"endingOffsets": str(POSITION)}, "end", POSITION),
        ({"startingTimestamp": "1970-01-01T00:00:01.000002Z"}, "since_us", 1_000_002),
        ({"startingTimestamp": "1970-01-02"}, "since_us", 86_400_000_000),
        ({"startingTimestamp": "1500"}, "since_us", 1_500_000),
        ({"endingTimestamp": "1970-01-01T01:00:00+01:00"}, "until_us", 0),
        ({"maxOffsetsPerTrigger": "7"}, "messages_per_trigger", 7),
        ({"maxMessagesPerTrigger": "7"}, "messages_per_trigger", 7),
        ({"minOffsetsPerTrigger": "7"}, "messages_to_wait_for", 7),
        ({"maxBytesPerTrigger": "64m"}, "bytes_per_trigger", 64 << 20),
        ({"maxBytesPerTrigger": "1000"}, "bytes_per_trigger", 1000),
        ({"maxTriggerDelay": "15m"}, "trigger_delay_s", 900.0),
        ({"maxTriggerDelay": "20ms"}, "trigger_delay_s", 0.02),
        ({"statementTimeout": "5"}, "statement_timeout_s", 5.0),
        ({"FAILONDATALOSS": "FALSE"}, "fail_on_data_loss", False),
        ({"consumerGroup": "billing"}, "consumer_group", "billing"),
        ({"holdSeconds": "60"}, "keep_s", 60),
        ({"tier": "live"}, "end", "latest"),
        ({"readUrl": "postgresql://reader@standby/skep"}, "read_timeout_s", 10.0),
        ({"readFallback": "fail", "readTimeout": "5s"}, "read_fallback", "fail"),
    ],
)
def test_an_option_is_understood(given, field, value):
    assert getattr(options(**given), field) == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffset": "latest"}, "unknown option 'startingOffset'; did you mean starting"),
        ({"xyz": "1"}, "unknown option 'xyz'$"),
        ({"startingOffsets": "now"}, "must be earliest, latest, or a stored position"),
        ({"startingOffsets": '{"orders":{"0":23}}'}, "must be earliest, latest, or a stored"),
        ({"endingOffsets": "earliest"}, "must be latest, or a stored position"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "not both"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "not both"),
        ({"startingTimestamp": "yesterday"}, "must be an ISO time"),
        ({"startingTimestamp": "9" * 30}, "must be an ISO time"),
        ({"maxMessagesPerTrigger": "0"}, "a whole number, at least 1"),
        ({"maxMessagesPerTrigger": "1", "maxOffsetsPerTrigger": "2"}, "given twice"),
        ({"maxMessagesPerTrigger": "1", "minMessagesPerTrigger": "2"}, "is larger than"),
        ({"maxBytesPerTrigger": "lots"}, "a size such as 64m"),
        ({"maxTriggerDelay": "5 fortnights"}, "a time such as"),
        ({"maxTriggerDelay": "-1s"}, "a time such as"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"holdSeconds": "99999999999"}, "at most"),
        ({"consumerGroup": ""}, "a name of 1 to 255 characters"),
        ({"payloadErrors": "ignore"}, "one of fail, null, dead-letter"),
        ({"tier": "warm"}, "one of live, archive, all"),
        ({"url": "mysql://x"}, "must begin with postgresql://"),
        ({"readUrl": "standby"}, "option readUrl must begin with postgresql://"),
        ({"subscribe": "a"}, "not both queue and subscribe"),
    ],
)
def test_a_wrong_option_is_refused_by_name(given, message):
    with pytest.raises(InvalidOption, match=message):
        options(**given)


@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({"queue": "a,b"}, Subscription(("a,b",))),
        ({"path": "a"}, Subscription(("a",))),
        ({"subscribe": "a, b,a"}, Subscription(("a", "b"))),
        ({"subscribePattern": "a.*"}, Subscription(pattern="a.*")),
        ({"assign": '{"a": ["x", "y"]}'}, Subscription(("a",), partitions={"a": ("x", "y")})),
    ],
)
def test_queues_can_be_named_in_several_ways(given, subscription):
    assert read_options({"url": URL, **given}).subscription == subscription


@pytest.mark.parametrize(
    "given",
    [{}, {"queue": ""}, {"subscribe": "a,,b"}, {"assign": "[]"}, {"assign": '{"a": 1}'},
     {"assign": '{"a": [1]}'}, {"assign": "{}"}],
)  # fmt: skip
def test_queues_have_to_be_named(given):
    with pytest.raises(InvalidOption):
        read_options({"url": URL, **given})


def test_the_database_of_the_settings_is_read_when_no_other_is_named(monkeypatch):
    monkeypatch.setenv("SKEP_DATABASE_URL", URL)
    assert read_options({"queue": "orders"}).url == URL
    monkeypatch.setenv("SKEP_DATABASE_URL", "nonsense")
    with pytest.raises(InvalidOption, match="no option url, and"):
        read_options({"queue": "orders"})
    monkeypatch.delenv("SKEP_DATABASE_URL")
    with pytest.raises(InvalidOption, match="give the option url"):
        read_options({"queue": "orders"})


@pytest.mark.parametrize(
    ("given", "column"),
    [
        ({}, "`payload` string"),
        ({"payload": "binary"}, "`payload` binary"),
        ({"payloadSchema": "a INT, b STRING"}, "`payload` struct<a INT, b STRING>"),
        ({"payloadSchema": "a: int"}, "`payload` struct<a: int>"),
        ({"payloadSchema": "array<int>"}, "`payload` array<int>"),
        ({"payloadSchema": "map<string,int>"}, "`payload` map<string,int>"),
        ({"payloadSchema": "bigint"}, "`payload` bigint"),
        ({"shape": "kafka"}, "`value` binary"),
    ],
)
def test_the_type_of_the_payload_can_be_chosen(given, column):
    assert column in schema_of(shape_options(given))


def test_the_standby_has_the_schema_of_the_primary():
    chosen = options(readUrl="postgresql://reader@standby/skep", databaseSchema="shop")

    assert split_schema(chosen.read_url)[1] == split_schema(chosen.url)[1] == Schema("shop")


def test_headers_are_a_column_unless_told_otherwise():
    assert "headers" in schema_of(shape_options({}))
    assert "headers" not in schema_of(shape_options({"includeHeaders": "false"}))
    assert "headers" not in schema_of(shape_options({"shape": "kafka"}))
    assert "headers" in schema_of(shape_options({"shape": "kafka", "includeHeaders": "true"}))


@pytest.mark.parametrize("more", [{"payload": "binary"}, {"shape": "kafka"}])
def test_a_payload_schema_goes_with_nothing_that_contradicts_it(more):
    with pytest.raises(InvalidOption, match="payloadSchema goes with neither"):
        shape_options({"payloadSchema": "a INT", **more})

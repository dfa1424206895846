import pytest

from tests.sql.support.enqueued import read, staged


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("""'{"b": 1, "a": "\\u0000"}'""", '{"b": 1, "a": "\\u0000"}'),
        ("jsonb_build_object('b', 1, 'a', 2)", '{"a": 2, "b": 1}'),
        ("""'{"b":1,"a":2}'::json""", '{"b":1,"a":2}'),
        ("' [1] '::text", "[1]"),
    ],
)
async def test_a_payload_may_be_json_or_jsonb_or_text_or_a_literal(log, payload, text):
    await log.value(f"select skep.stage('hive', 'a', {payload})")

    [row] = await read(log)
    assert row.payload == text


async def test_arguments_can_be_named_and_left_out(log):
    name = await log.value("select skep.stage(queue => 'hive', partition => '', payload => '1')")
    await log.value(
        "select skep.stage('hive', 'a', '1', transaction_id => 'x', headers => '{\"h\": 1}',"
        " trace_id => '0198c0de-0000-7000-8000-000000000001', ttl_s => 60,"
        " deliver_at => '2026-01-01 13:00+00')"
    )

    first, second = await read(log)
    assert await staged(log) == [name, "x"]
    assert (first.partition, first.headers, first.deliver_at) == ("Default", None, None)
    assert (second.partition, second.headers, second.ttl_s) == ("a", '{"h": 1}', 60)
    assert second.deliver_at.hour == 13
    assert str(second.trace_id) == "0198c0de-0000-7000-8000-000000000001"

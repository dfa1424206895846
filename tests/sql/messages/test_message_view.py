"""The view skep.message."""

import pytest

from tests.sql.support.log import NOON, body_of, envelope


async def test_the_log_reads_as_rows(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: ["p", "q"], b: ["r"]})
    await log.push(a, "s")

    rows = await log.rows(
        """
        select queue, partition, "offset", transaction_id, created_at, partition_id
        from skep.message order by partition, "offset"
        """
    )

    assert list(map(tuple, rows)) == [
        ("hive", "a", 1, "p", NOON, a),
        ("hive", "a", 2, "q", NOON, a),
        ("hive", "a", 3, "s", NOON, a),
        ("hive", "b", 1, "r", NOON, b),
    ]


async def stored_payload(log, data):
    partition, _ = await log.partition()
    await log.push_bodies({partition: "a"}, {partition: body_of([envelope("a", data)])})
    return await log.value("select payload::text from skep.message")


@pytest.mark.parametrize(
    "data",
    [
        '{"b":1, "a":2,  "b":3}',
        "1.10e5",
        "null",
        '"ünïcödé \\u00fc"',
        r'"nul \u0000, really backslash u0000: \\u0000"',
        r'{"nul \u0000 in a name":[]}',
        r'"lone \ud800 surrogate"',
        r'"\",\"data\":1}"',
        '{"transactionId":"z","data":{"data":"}"}}',
    ],
)
async def test_a_payload_is_the_text_that_was_sent(log, data):
    assert await stored_payload(log, data) == data


async def test_a_large_payload_is_the_text_that_was_sent(log):
    data = '"%s"' % (r"é\u0000" * 150_000)

    assert await stored_payload(log, data) == data


async def test_ids_of_messages_traces_and_producers_are_read_beside_any_payload(log):
    partition, _ = await log.partition()
    text = (
        r'{"transactionId":"a \"quoted\" \\ id","traceId":"0f0e","producerSub":"w\u00f6rker"'
        r',"data":"\u0000"}'
    )
    await log.push_bodies({partition: "a"}, {partition: text.join("[]").encode()})

    row = await log.row("select transaction_id, trace_id, producer_sub from skep.message")

    assert tuple(row) == ('a "quoted" \\ id', "0f0e", "wörker")


async def test_missing_ids_are_null(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    row = await log.row("select trace_id, producer_sub from skep.message")

    assert tuple(row) == (None, None)


async def test_deleted_messages_are_left_out_and_the_others_keep_their_offsets(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b", "c")
    await log.execute(
        "update skep.segment set body = $1", body_of([envelope("a"), "null", envelope("c")])
    )

    rows = await log.rows('select "offset", transaction_id from skep.message order by 1')

    assert list(map(tuple, rows)) == [(1, "a"), (3, "c")]

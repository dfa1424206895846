"""A flush of more than a page becomes several segments, whichever way it is pushed."""

import json
from itertools import chain

from skep.model.envelopes import SEGMENT_BYTES_MAX, join_segments
from tests.sql.support.log import ALWAYS, NOON, Guarantee, Poll, key_of, keys_of

MANY = [f"message {number}" for number in range(300)]
MORE = [f"more {number}" for number in range(300)]


async def stored(log, partition):
    """Return the names stored in the partition, of each segment its own; all must be in order."""
    rows = await log.rows(
        "select * from skep.segment where partition_id = $1 order by first", partition
    )
    names = [[each["transactionId"] for each in json.loads(row["body"])] for row in rows]
    ends = [row["last"] for row in rows]
    assert [row["first"] for row in rows] == [1, *(end + 1 for end in ends[:-1])]
    assert [row["last"] - row["first"] + 1 for row in rows] == list(map(len, names))
    assert [row["keys"] for row in rows] == list(map(keys_of, names))
    assert all(len(row["keys"]) + len(row["body"]) <= SEGMENT_BYTES_MAX + 1 for row in rows)
    return names


async def heads(log, *partitions):
    return [
        await log.value("select head from skep.partition where id = $1", each)
        for each in partitions
    ]


async def test_each_partition_of_a_call_gets_as_many_segments_as_it_needs(log):
    a, b, c, d = await log.provision("hive", "a", "b", "c", "d")
    await log.push(c, "before")

    pushed = await log.push_guaranteed(
        {a: "x", b: MANY, c: MORE, d: "yz"}, {a: 0, b: 0, c: 1, d: 0}
    )

    assert pushed == {a: (1, NOON), b: (1, NOON), c: (2, NOON), d: (1, NOON)}
    assert await heads(log, a, b, c, d) == [1, 300, 301, 2]
    of_b, of_c = await stored(log, b), await stored(log, c)
    assert (await stored(log, a), await stored(log, d)) == ([["x"]], [["y", "z"]])
    assert len(of_b) > 3
    assert list(chain(*of_b)) == MANY
    assert list(chain(*of_c)) == ["before", *MORE]


async def test_what_is_left_out_of_a_call_takes_its_segments_with_it(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await log.push(a, "theirs")

    assert list(await log.push_guaranteed({a: MANY, b: MORE, c: MANY}, {a: 0, b: 0, c: 0})) == [
        b,
        c,
    ]

    assert await stored(log, a) == [["theirs"]]
    assert list(chain(*await stored(log, b))) == MORE
    assert list(chain(*await stored(log, c))) == MANY


async def test_a_probed_push_is_cut_too_and_one_with_a_duplicate_stores_nothing(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await log.push(a, MANY[250])
    writes = {a: MANY, b: MORE, c: MANY, 1_000_000: MANY}

    pushed = await log.push_writes(writes)

    assert {row.partition_id: (row.first, row.duplicates) for row in pushed} == {
        a: (None, {250: 1}),
        b: (1, None),
        c: (1, None),
    }
    assert list(chain(*await stored(log, b))) == MORE
    assert list(chain(*await stored(log, c))) == MANY


async def test_duplicates_are_found_in_every_segment_of_a_push(log):
    partition, _ = await log.partition()
    await log.push(partition, *MANY)
    again = [MANY[299], "new", *MORE, MANY[0], MANY[77]]

    [row] = await log.push_writes({partition: again})

    assert row.duplicates == {0: 300, 302: 1, 303: 78}
    assert (row.gap_first, row.gap_keys) == (1, keys_of(MANY))


async def test_the_gap_of_a_contested_push_may_be_many_segments(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: MANY, b: MANY})

    pushed, gaps = await log.push_contested({a: MORE, b: "xy"}, {a: 0, b: 0})

    assert pushed == {a: (301, NOON), b: (301, NOON)}
    for partition in (a, b):
        of_partition = [gap for gap in gaps if gap[0] == partition]
        assert len(of_partition) > 3
        assert b"".join(keys for *_, keys in of_partition) == keys_of(MANY)


async def test_messages_are_delivered_from_several_segments(log):
    partition, group = await log.partition()
    await log.push(partition, *MANY)

    first = await log.pop(group, Poll(100, auto_ack=True))
    await log.advance()
    one = await log.pop(group, Poll(1, auto_ack=True))
    await log.advance()
    rest = await log.pop(group, Poll(1_000, auto_ack=True))

    assert [m.transaction_id for m in first.messages] == MANY[:100]
    assert [m.transaction_id for m in one.messages] == MANY[100:101]
    assert len(one) == 1
    assert [m.transaction_id for m in rest.messages] == MANY[101:]


async def test_envelopes_are_cut_in_sql_as_the_broker_cuts_them(log):
    sizes = [7_982, 7_983, 1, 1, 3_000, 5_000, 4_983, 9_000, 20_000, 10, 100, *[250] * 200]
    envelopes = [b"x" * size for size in sizes]

    row = await log.row("select * from skep.join_envelopes($1)", envelopes)

    broker = join_segments([envelopes])
    assert (row["body"], row["row_end"]) == (broker.bodies, broker.row_end)


async def test_a_transaction_is_cut_too_with_and_without_its_duplicates(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(b, MANY[5])
    envelopes = [f'{{"transactionId":"{name}","data":{{}}}}'.encode() for name in MANY]

    row = await log.row(
        "select * from skep.push_distinct($1, $2, $3, $4, $5, $6)",
        [a, b],
        [0, 0],
        [ALWAYS, ALWAYS],
        [1] * 300 + [2] * 300,
        list(map(key_of, MANY)) * 2,
        envelopes * 2,
    )

    kept = [name for name in MANY if name != MANY[5]]
    assert row["push_offset"][:300] == list(range(1, 301))
    assert row["push_is_duplicate"].index(True) == 305
    assert list(chain(*await stored(log, a))) == MANY
    assert list(chain(*await stored(log, b))) == [MANY[5], *kept]


async def test_a_segment_of_an_earlier_release_is_searched_and_read_as_it_is(log):
    partition, group = await log.partition()
    body = b"[%b]" % b",".join(b'{"transactionId":"%b","data":1}' % n.encode() for n in MANY)
    await log.push_bodies({partition: MANY}, {partition: body})

    [row] = await log.push_writes(
        {partition: [*MORE, MANY[123]]}, {partition: Guarantee(0, ALWAYS)}
    )
    await log.push(partition, *MORE)

    assert row.duplicates == {300: 124}
    taken = await log.pop(group, Poll(1_000))
    assert [m.transaction_id for m in taken.messages] == [*MANY, *MORE]


async def test_brokers_of_the_release_before_push_a_segment_per_partition(log):
    partition, _ = await log.partition()
    versions = await log.versions([partition])
    body = b"[%b]" % b",".join(b'{"transactionId":"%b","data":1}' % n.encode() for n in MANY)
    known = [partition], [300], [0], [keys_of(MANY)], [body]
    since = list(versions), list(versions.values()), ALWAYS

    for function in ("push_guaranteed", "push_contested"):
        query = f"select * from skep.{function}($1, $2, $3, $4, $5, $6, $7, $8)"
        async with log.connection.transaction():
            rows = await log.rows(query, *known, *since)
            stored = await log.row("select first, last, body from skep.segment")
            await log.execute("delete from skep.segment; update skep.partition set head = 0")

        assert [row["first"] for row in rows] == [1]
        assert tuple(stored) == (1, 300, body)

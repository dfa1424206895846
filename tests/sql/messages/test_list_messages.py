from tests.sql.support.log import Poll, body_of, envelope, key_of

QUERY = "select * from skep.list_messages($1, $2, $3, $4, $5, $6, $7, $8, $9)"


async def page(log, segments, *, status=None, key=None, preview=0, skip=0, limit=100, low=None):
    """List segments given as (partition, first, before)."""
    ids, first, before = [list(column) for column in zip(*segments, strict=True)] or [[], [], []]
    chosen = (ids, first, [low] * len(ids), before, status, key)
    rows = await log.rows(QUERY, *chosen, preview, skip, limit)
    return rows[0]["matched"], [row["message_offset"] for row in rows if row["item"]], rows


async def test_segments_keep_their_order_and_the_newest_message_comes_first(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "1", "2")
    await log.push(b, "3")

    matched, offsets, rows = await page(log, [(b, 1, None), (a, 1, None)])

    assert (matched, offsets) == (3, [1, 2, 1])
    assert [row["partition_name"] for row in rows] == ["b", "a", "a"]
    assert rows[1]["head"] == '{"transactionId":"2","traceId":null,"producerSub":null}'
    assert (rows[0]["queue_name"], rows[0]["status"]) == ("hive", "pending")


async def test_a_page_is_cut_out_of_all_that_matches(log):
    partition, _ = await log.partition()
    await log.push(partition, *"abcde")

    assert (await page(log, [(partition, 1, None)], skip=1, limit=2))[:2] == (5, [4, 3])
    assert (await page(log, [(partition, 1, 3)], limit=2))[:2] == (2, [2, 1])


async def test_a_page_beyond_the_end_still_counts(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    assert (await page(log, [(partition, 1, None)], skip=5))[:2] == (1, [])
    assert (await page(log, []))[:2] == (0, [])


async def test_status_and_key_select_messages(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    await log.pop(group, Poll(batch=1, auto_ack=True))

    async def found(**options):
        return (await page(log, [(partition, 1, None)], **options))[1]

    assert await found(status="completed") == [1]
    assert await found(status="pending") == [3, 2]
    assert await found(key=key_of("b")) == [2]
    assert await found(key=key_of("b"), status="completed") == []


async def test_a_deleted_message_is_not_listed(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await log.value("select skep.delete_message($1, 1)", partition)

    assert (await page(log, [(partition, 1, None)]))[:2] == (1, [2])


async def test_any_payload_can_be_listed(log):
    partition, _ = await log.partition()
    odd = envelope("a", r'{"data":"nul \u0000","data":1}')
    await log.push_bodies({partition: "a"}, {partition: body_of([odd])})

    _, offsets, [row] = await page(log, [(partition, 1, None)], preview=100)

    assert (offsets, row["preview"]) == ([1], r'{"data":"nul \u0000","data":1}')


async def test_a_preview_is_the_beginning_of_the_payload_unless_that_is_encrypted(log):
    partition, _ = await log.partition()
    sealed = envelope("b", '"c2VhbGVk"').replace("{", '{"enc":"k",', 1)
    bodies = body_of([envelope("a", '{"n": 12345}'), sealed])
    await log.push_bodies({partition: ("a", "b")}, {partition: bodies})

    rows = (await page(log, [(partition, 1, None)], preview=7))[2]
    assert [row["preview"] for row in rows] == [None, '{"n": 1']

    rows = (await page(log, [(partition, 1, None)]))[2]
    assert [row["preview"] for row in rows] == [None, None]


async def test_the_same_segment_may_be_named_for_each_of_its_messages(log):
    partition, _ = await log.partition()
    await log.push(partition, *"abcde")

    assert (await page(log, [(partition, 1, 5), (partition, 1, 3)], low=2))[1] == [4, 3, 2, 2]


async def test_the_standing_is_part_of_the_statement_and_not_called_per_segment(log):
    partitions = await log.provision("hive", "a", "b")
    await log.push_writes(dict.fromkeys(partitions, ("x", "y")))

    async with log.connection.transaction():
        await log.execute("set local track_functions = 'all'")
        rows = await log.rows(
            "select * from skep.list_messages($1, '{1,1}', '{null,null}', '{null,null}', 'pending',"
            " null, 0, 0, 9)",
            partitions,
        )
        called = await log.rows("select funcname from pg_stat_xact_user_functions")

    assert len(rows) == 4
    assert "message_standing" not in {row["funcname"] for row in called}

from tests.sql.support.log import ALWAYS, NOON, Guarantee, body_of, envelope, keys_of


async def push_doubtful(log, writes, doubtful, guarantees=None, *, resolve=False):
    ids = sorted(writes)
    guaranteed = [(guarantees or {}).get(id_, Guarantee(0, ALWAYS)) for id_ in ids]
    rows = await log.rows(
        "select * from skep.push_doubtful($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        ids,
        [len(writes[id_]) for id_ in ids],
        [guarantee.to for guarantee in guaranteed],
        [guarantee.since for guarantee in guaranteed],
        [keys_of(writes[id_]) for id_ in ids],
        [body_of(map(envelope, writes[id_])) for id_ in ids],
        resolve,
        doubtful,
        log.now,
    )
    return {row["partition_id"]: row for row in rows}


async def heads(log):
    return [row["head"] for row in await log.rows("select head from skep.partition order by id")]


async def test_a_partition_with_a_duplicate_stores_nothing_while_its_neighbours_do(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await log.push(b, "old")

    rows = await push_doubtful(log, {a: "p", b: ["new", "old"], c: "q"}, [a, b, c])

    assert (rows[a]["first"], rows[b]["first"], rows[c]["first"]) == (1, None, 1)
    assert (rows[b]["duplicate_index"], rows[b]["duplicate_offset"]) == ([1], [1])
    assert (rows[a]["duplicate_index"], rows[c]["duplicate_index"]) == (None, None)
    assert await heads(log) == [1, 1, 1]


async def test_bodies_stay_with_their_partitions(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await log.push(a, "old")

    await push_doubtful(log, {a: ["old"], b: "pq", c: "r"}, [a, c])

    stored = await log.rows("select partition_id, keys, body from skep.segment where first = 1")
    by_partition = {row["partition_id"]: (row["keys"], row["body"]) for row in stored}
    assert by_partition == {
        a: (keys_of(["old"]), body_of([envelope("old")])),
        b: (keys_of("pq"), body_of(map(envelope, "pq"))),
        c: (keys_of("r"), body_of(map(envelope, "r"))),
    }


async def test_nothing_is_stored_when_every_partition_has_duplicates(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: "p", b: "q"})

    rows = await push_doubtful(log, {a: "p", b: "q"}, [a, b])

    assert [row["first"] for row in rows.values()] == [None, None]
    assert await heads(log) == [1, 1]


async def test_a_partition_that_is_not_doubtful_is_not_probed(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: "p", b: "q"})

    rows = await push_doubtful(log, {a: "p", b: "q"}, [b])

    assert rows[a]["first"] == 2, "the broker's word was doubted although it covers everything"
    assert rows[b]["first"] is None


async def test_only_doubtful_partitions_cost_a_probe(log):
    a, b = await log.provision("hive", "a", "b")
    for number in range(20):
        await log.push(a, f"message {number}")
    await log.push(b, "q")

    async with log.connection.transaction():
        before = await segment_reads(log)
        await push_doubtful(log, {a: "p", b: "r"}, [b])

        assert await segment_reads(log) - before < 5


async def segment_reads(log):
    query = "select idx_tup_fetch from pg_stat_xact_user_tables where relname = 'segment'"
    return await log.value(query)


async def test_what_others_pushed_comes_back_with_a_stored_segment(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "a", "b")

    row = (await push_doubtful(log, {partition: "c"}, [partition]))[partition]

    assert row["first"] == 3
    assert (row["gap_first"], row["gap_keys"]) == (1, keys_of("ab"))
    assert row["gap_created_at"] == NOON


async def test_what_others_pushed_comes_back_with_a_duplicate(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "a", "b")

    row = (await push_doubtful(log, {partition: "b"}, [partition]))[partition]

    assert row["first"] is None
    assert (row["gap_first"], row["gap_keys"]) == (1, keys_of("ab"))


async def test_a_partition_that_does_not_exist_gets_no_row(log):
    [partition] = await log.provision("hive", "a")

    rows = await push_doubtful(log, {partition: "a", 1_000_000: "b"}, [partition])

    assert list(rows) == [partition]

EVIDENCE = "select created_us, kept from skep.position_evidence($1, $2, $3)"


async def test_it_tells_when_segments_of_a_transaction_were_created_and_what_a_timeline_kept(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.execute("insert into skep.timeline values (7, '5')")
    xid = await log.value("select xid::text::bigint from skep.segment")
    queues = [await log.value("select id from skep.queue")]

    found = await log.row(EVIDENCE, queues, xid, 7)

    assert found["created_us"] == [log.now.timestamp() * 1_000_000]
    assert found["kept"] == 5
    assert tuple(await log.row(EVIDENCE, queues, xid + 1, 8)) == ([], None)
    assert (await log.row(EVIDENCE, [], xid, 8))["created_us"] == []

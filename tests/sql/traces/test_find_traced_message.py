from tests.sql.support.log import ALWAYS, Ack, Guarantee, Poll, key_of, keys_of


async def push_later(log, partition, count):
    """Push messages one by one; as a broker knows that they are new, nobody looks for them."""
    for number in range(count):
        await log.push(partition, f"later {number}", guarantee=Guarantee(1 << 60, ALWAYS))


def find(log, partition, name):
    query = "select skep.find_traced_message($1, $2)"
    return log.value(query, partition, key_of(name))


async def test_a_message_nobody_has_read_is_found(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "a", "b")
    await log.push(partition, "c")

    assert [await find(log, partition, name) for name in "abc"] == [1, 2, 3]


async def test_of_a_repeated_transaction_id_the_one_under_lease_is_meant(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    await log.advance(2 * 3600)
    await log.push(partition, "x")
    await log.pop(group, Poll(batch=1))

    assert await find(log, partition, "x") == 1


async def test_of_a_repeated_transaction_id_nobody_holds_the_newest_is_meant(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")
    await log.advance(2 * 3600)
    await log.push(partition, "x")

    assert await find(log, partition, "x") == 2


async def test_a_message_just_acknowledged_is_found_far_from_the_newest_ones(log):
    partition, group = await log.partition()
    await log.push(partition, "done")
    await push_later(log, partition, 1_001)
    [taken] = await log.pop(group, Poll(batch=1, lease_s=60))
    lease_id = await log.value("select lease_id from skep.cursor where leased is not null")
    await log.ack(Ack(partition, 1, lease_id))

    assert taken.taken_to == 1
    assert await find(log, partition, "done") == 1


async def test_the_search_is_bounded(log):
    partition, group = await log.partition()
    await log.push(partition, "too old")
    await push_later(log, partition, 1_000)
    await log.pop(group, Poll(batch=2_000, auto_ack=True))

    assert await find(log, partition, "too old") is None
    assert await find(log, partition, "later 0") == 2


async def test_what_is_not_there_is_not_found(log):
    partition, _ = await log.partition()
    [other] = await log.provision("hive", "other")
    await log.push(partition, "a", "b")
    crossing = keys_of("ab")[8:24]

    assert await find(log, partition, "nobody") is None
    assert await find(log, other, "a") is None
    assert await find(log, 0, "a") is None
    query = "select skep.find_traced_message($1, $2)"
    assert await log.value(query, partition, crossing) is None

from tests.sql.support.log import key_of, keys_of


async def find(log, partition, name, *, acked=0, leased=None):
    query = "select skep.find_offsets($1, $2, $3, $4)"
    found = await log.value(query, partition, acked, leased, key_of(name))
    return found[0] if found and len(found) == 1 else found


async def ten_messages(log):
    """Push a to j in segments of three; return the partition."""
    partition, _ = await log.partition()
    for names in ("abc", "def", "ghi", "j"):
        await log.push(partition, *names)
    return partition


async def test_a_message_under_lease_is_found(log):
    partition = await ten_messages(log)

    assert [await find(log, partition, name, leased=8) for name in "aefh"] == [1, 5, 6, 8]


async def test_a_message_in_the_rest_of_a_segment_begun_is_found(log):
    partition = await ten_messages(log)

    assert await find(log, partition, "f", acked=5, leased=8) == 6


async def test_a_message_that_was_done_is_found_so_that_a_repeated_ack_is_recognised(log):
    partition = await ten_messages(log)

    assert [await find(log, partition, name, acked=8) for name in "ah"] == [1, 8]


async def test_what_lies_beyond_the_lease_is_not_searched(log):
    partition = await ten_messages(log)

    assert await find(log, partition, "j", leased=8) is None


async def test_without_a_lease_what_follows_the_cursor_is_searched(log):
    partition = await ten_messages(log)

    assert await find(log, partition, "j", acked=2) == 10


async def test_all_unfinished_messages_of_a_key_are_found_and_else_the_newest(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b", "x")
    await log.advance(2 * 3600)
    await log.push(partition, "b", "c")

    assert await find(log, partition, "b", leased=5) == [2, 4]
    assert await find(log, partition, "b", leased=3) == 2
    assert await find(log, partition, "b", acked=2, leased=5) == 4
    assert await find(log, partition, "b", acked=5) == 4


async def test_what_was_never_pushed_is_not_found(log):
    partition = await ten_messages(log)

    assert await find(log, partition, "nobody", acked=3, leased=9) is None


async def test_messages_of_other_partitions_are_not_found(log):
    await ten_messages(log)
    [other] = await log.provision("hive", "other")

    assert await find(log, other, "a", leased=10) is None


async def test_bytes_that_match_across_the_border_of_two_keys_are_not_found(log):
    partition = await ten_messages(log)
    crossing = keys_of("ab")[8:24]

    found = await log.value("select skep.find_offsets($1, 0, 10, $2)", partition, crossing)

    assert found is None


async def test_the_search_is_bounded_in_both_directions(log):
    partition, _ = await log.partition()
    await log.push(partition, "oldest")
    for number in range(200):
        await log.push(partition, f"done {number}")
    await log.push(partition, *(f"ahead {number}" for number in range(9_999)))
    await log.push(partition, "last in reach")
    await log.push(partition, "out of reach")

    assert await find(log, partition, "oldest", acked=201) is None
    assert await find(log, partition, "done 0", acked=201) == 2
    assert await find(log, partition, "last in reach", acked=201) == 10_201
    assert await find(log, partition, "out of reach", acked=201) is None

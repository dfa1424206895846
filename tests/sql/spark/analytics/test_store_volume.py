async def keys_of(analyses):
    return await analyses.table("key", "queue", "key", "messages")


async def test_an_hour_that_is_computed_again_takes_the_place_of_what_was_there(analyses):
    await analyses.store(messages=10, keys={"a": 6, "b": 4})

    assert await analyses.store(messages=10, keys={"a": 7, "c": 3}) == 1
    volume = await analyses.table("volume", "queue", "messages", "partitions", "busiest_messages")
    assert volume == [("hive", 10, 2, 7)]
    assert await keys_of(analyses) == [("hive", "a", 7), ("hive", "c", 3)]


async def test_an_account_with_fewer_messages_is_not_taken(analyses):
    await analyses.store(messages=10, keys={"a": 6, "b": 4})

    assert await analyses.store(messages=9, keys={"a": 9}) == 0
    assert await analyses.table("volume", "messages", "partitions") == [(10, 2)]
    assert await keys_of(analyses) == [("hive", "a", 6), ("hive", "b", 4)]


async def test_other_hours_and_queues_are_left_alone(analyses):
    await analyses.store(hours=0)
    await analyses.store(queue="nest")
    await analyses.store(hours=1, messages=3)
    await analyses.store(hours=1, messages=5)

    assert await analyses.table("volume", "queue", "messages") == [
        ("hive", 10),
        ("nest", 10),
        ("hive", 5),
    ]
    assert len(await keys_of(analyses)) == 3


async def test_keys_of_a_kind_that_was_not_computed_again_stay(analyses, log):
    await analyses.store(keys={"a": 10})
    await log.execute("update skep.analytics_key set kind = 'key', key = 'Ann'")

    await analyses.store(keys={"a": 10})

    assert await keys_of(analyses) == [("hive", "Ann", 10), ("hive", "a", 10)]


async def test_nothing_is_stored_of_nothing(analyses, log):
    assert await log.value("select skep.store_volume('[]', '[]')") == 0

import pytest


async def measure(log, *, seconds=100, partitions=100, segments=100):
    return await log.value("select skep.measure_ingest($1, $2, $3)", seconds, partitions, segments)


async def test_nothing_was_pushed(log):
    await log.provision("hive", "a")

    assert await measure(log) == 0


async def test_messages_of_the_last_seconds_are_averaged_over_them(log):
    first, second = await log.provision("hive", "a", "b")
    await log.push(first, *"abcdefgh")
    await log.advance(101)
    await log.push(first, "x", "y")
    await log.push(second, *"abc")

    assert await measure(log) == pytest.approx(5 / 100)


async def test_a_partition_with_more_segments_is_taken_to_go_on_as_it_does(log):
    [partition] = await log.provision("hive", "a")
    for name in "abcdef":
        await log.advance(2)
        await log.push(partition, name)

    # Of the three newest segments the oldest is four seconds old: three messages in four seconds.
    assert await measure(log, segments=3) == pytest.approx(3 / 4)


async def test_partitions_beyond_those_looked_at_are_taken_to_be_like_them(log):
    partitions = await log.provision("hive", *"abcd")
    await log.push_writes(dict.fromkeys(sorted(partitions), "xy"))

    assert await measure(log, partitions=2) == pytest.approx(8 / 100)

"""The loader of stored keys, beside the log it reads."""

import asyncio
from datetime import timedelta

import pytest

from skep.broker.directory import Partition
from skep.broker.push.rules import QueueRules
from skep.broker.push.stored_keys import KeyLoader
from skep.engine.key_cache.cache import KeyCache
from tests.sql.support.log import key_of, keys_of

WINDOW = timedelta(hours=1)


class Loading:
    """A loader that takes small steps, and counts them."""

    def __init__(self, log, *, step_keys=6, clock_behind_s=0):
        self.log = log
        self.cache = KeyCache(memory_bytes_max=1 << 20)
        self.steps = 0
        self.loader = KeyLoader(
            self,
            self.cache,
            lambda: log.now - timedelta(seconds=clock_behind_s),
            step_keys=step_keys,
            partitions_per_step=2,
        )

    async def call(self, statement, *arguments):
        self.steps += 1
        return await self.log.rows(statement, *arguments)

    def lacking(self, *partitions):
        return self.loader.lacking(partitions)

    def knows(self, partition, names):
        hits = self.cache.find([(partition.partition_id, keys_of(names))])
        return {names[hit.key_index]: hit.offset for hit in hits}


async def partitions_of(log, *names, window_s=3600):
    ids = await log.provision("hive", *names)
    await log.set_options("hive", dedup_window_s=window_s)
    rules = QueueRules(1, dedup_window_s=window_s)
    return [Partition("hive", name, 1, id_, rules) for name, id_ in zip(names, ids, strict=True)]


async def push_each(log, partition, *writes):
    for names in writes:
        await log.push(partition.partition_id, *names)
        await log.advance()


async def test_a_window_is_read_in_steps_and_then_guaranteed_as_a_whole(log):
    [partition] = await partitions_of(log, "a")
    await push_each(log, partition, "abc", "def", "ghi", "jkl", "mno")
    loading = Loading(log)

    await loading.loader.load([partition])

    to, since = loading.cache.guarantee(partition.partition_id)
    assert (to, since <= log.now - WINDOW) == (15, True)
    assert loading.steps > 2
    names = "abcdefghijklmno"
    assert loading.knows(partition, names) == {name: names.index(name) + 1 for name in names}
    assert loading.lacking(partition) == []


async def test_small_windows_are_ready_before_large_ones(log):
    large, small = await partitions_of(log, "large", "small")
    await push_each(log, large, "abc", "def", "ghi", "jkl")
    await push_each(log, small, "x")
    told = []

    await Loading(log).loader.load([large, small], told.append)

    assert told == [[small], [large]]


async def test_of_what_others_stored_since_only_that_is_read(log):
    [partition] = await partitions_of(log, "a")
    await push_each(log, partition, "abc", "def")
    loading = Loading(log, step_keys=100)
    await loading.loader.load([partition])
    await push_each(log, partition, "ghi", "jkl")
    _, since = loading.cache.guarantee(partition.partition_id)
    read = []
    call = loading.call

    async def note(statement, *arguments):
        rows = await call(statement, *arguments)
        read.extend(row["firsts"] for row in rows)
        return rows

    loading.call = note
    await loading.loader.load([partition])

    assert read == [[7, 10]]
    assert loading.cache.guarantee(partition.partition_id) == (12, since + timedelta(seconds=2))
    assert loading.knows(partition, "al") == {"a": 1, "l": 12}


async def test_a_window_that_became_longer_is_read_anew(log):
    [partition] = await partitions_of(log, "a", window_s=1)
    await push_each(log, partition, "a")
    await log.advance(120)
    loading = Loading(log)
    await loading.loader.load([partition])
    assert loading.knows(partition, "a") == {}

    await log.set_options("hive", dedup_window_s=3600)
    partition.rules.dedup_window_s = 3600

    assert loading.lacking(partition) == [partition]
    await loading.loader.load([partition])
    assert loading.lacking(partition) == []
    assert loading.knows(partition, "a") == {"a": 1}


@pytest.mark.parametrize("clock_behind_s", [300, -300])
async def test_a_clock_that_is_wrong_does_not_let_a_window_be_read_again_and_again(
    log, clock_behind_s
):
    [partition] = await partitions_of(log, "a")
    await push_each(log, partition, "a")
    loading = Loading(log, clock_behind_s=clock_behind_s)

    await loading.loader.load([partition])

    assert loading.lacking(partition) == []


async def test_what_the_cache_has_no_room_for_is_not_read_again(log):
    [partition] = await partitions_of(log, "a")
    await push_each(log, partition, "abc", "def", "ghi", "jkl")
    loading = Loading(log)
    loading.cache._runs.horizon = log.now - timedelta(seconds=2)

    await loading.loader.load([partition])

    to, since = loading.cache.guarantee(partition.partition_id)
    assert (to, since) == (12, loading.cache.horizon)
    assert loading.lacking(partition) == []


async def test_without_room_for_the_window_only_what_others_stored_is_read(log):
    [partition] = await partitions_of(log, "a")
    await push_each(log, partition, "abc", "def", "ghi", "jkl")
    loading = Loading(log)
    loading.cache._runs.horizon = log.now - timedelta(seconds=2)
    await loading.loader.load([partition])
    await push_each(log, partition, "mno")
    before = loading.loader.loaded_keys

    await loading.loader.load([partition])

    assert loading.loader.loaded_keys - before == 3
    assert loading.cache.guarantee(partition.partition_id) == (15, loading.cache.horizon)


async def test_two_that_want_the_same_partition_read_it_once(log):
    [partition] = await partitions_of(log, "a")
    await push_each(log, partition, "a")
    loading = Loading(log)
    told = []

    await asyncio.gather(
        loading.loader.load([partition], told.append), loading.loader.load([partition], told.append)
    )

    assert loading.steps == 1
    assert told == [[partition], [partition]]


async def test_a_new_partition_is_guaranteed_without_reading(log):
    [partition] = await partitions_of(log, "a")
    loading = Loading(log)

    await loading.loader.prepare([partition], [])

    assert loading.steps == 0
    assert loading.lacking(partition) == []
    assert loading.cache.find([(partition.partition_id, key_of("a"))]) == []


async def test_a_partition_that_others_pushed_much_into_is_lacking(log):
    [partition] = await partitions_of(log, "a")
    loading = Loading(log)
    await loading.loader.prepare([partition], [])

    partition.head = 100_000

    assert loading.lacking(partition) == [partition]

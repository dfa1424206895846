import pytest

from tests.sql.support.housekeeping import Keeper
from tests.sql.support.log import Ack, Poll


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def push_over_time(log, partition, *names, gap_s=10):
    """Push segments of one message, with time between them."""
    for name in names:
        await log.push(partition, name)
        await log.advance(gap_s)


async def test_what_is_older_than_the_retention_goes_and_the_rest_stays(log, keeper):
    partition, _ = await log.partition()
    await log.configure("hive", retention_enabled=True, retention_s=25)
    await push_over_time(log, partition, "a", "b", "c", "d")

    deleted = await keeper.retain()

    assert (deleted.messages, deleted.segments, deleted.partitions) == (2, 2, 1)
    assert await keeper.kept(partition) == (3, 4)


async def test_retention_that_is_not_enabled_deletes_nothing(log, keeper):
    partition, _ = await log.partition()
    await log.configure("hive", retention_enabled=False, retention_s=1, completed_retention_s=1)
    await push_over_time(log, partition, "a")

    assert (await keeper.retain()).messages == 0
    assert (await keeper.retain("completed")).messages == 0
    assert await keeper.kept(partition) == (1, 1)


async def test_a_ttl_deletes_without_retention_being_enabled(log, keeper):
    partition, _ = await log.partition()
    await log.configure("hive", ttl_s=5)
    await push_over_time(log, partition, "a")

    assert (await keeper.retain()).messages == 1
    assert await keeper.kept(partition) == (2, 1)


async def test_of_ttl_and_retention_the_shorter_decides(log, keeper):
    partition, _ = await log.partition()
    await log.configure("hive", ttl_s=1000, retention_enabled=True, retention_s=15)
    await push_over_time(log, partition, "a", "b")

    assert (await keeper.retain()).messages == 1


async def test_another_queue_keeps_its_own(log, keeper):
    mine, _ = await log.partition("hive")
    other, _ = await log.partition("comb")
    for queue in ("hive", "comb"):
        await log.configure(queue, retention_enabled=True, retention_s=1)
    await log.push_writes({mine: ["a"], other: ["b"]})
    await log.advance(10)

    await keeper.retain(queue="hive")

    assert await keeper.kept(mine) == (2, 1)
    assert await keeper.kept(other) == (1, 1)


async def test_steps_go_through_everything_and_none_looks_at_more_than_its_limit(log, keeper):
    partitions = await log.provision("hive", *"abc")
    await log.configure("hive", retention_enabled=True, retention_s=1)
    for number in range(7):
        for partition in partitions:
            await log.push(partition, f"{number}")
    await log.advance(10)

    counts, reached, is_done = [], 0, False
    while not is_done:
        step = await keeper.retain(limit=5, after=reached)
        counts.append(step.segments)
        reached, is_done = step.reached, step.is_done

    assert counts == [5, 5, 5, 5, 1]
    for partition in partitions:
        assert await keeper.kept(partition) == (8, 7)


async def test_a_transaction_wider_than_the_limit_is_taken_as_a_whole(log, keeper):
    partitions = await log.provision("hive", *"abcde")
    await log.configure("hive", retention_enabled=True, retention_s=1)
    await log.push_writes({partition: ["x"] for partition in partitions})
    await log.advance(10)

    assert (await keeper.retain(limit=2)).segments == 5


async def test_a_group_that_had_not_read_them_goes_on_behind_what_was_deleted(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, retention_s=25)
    await push_over_time(log, partition, "a", "b", "c", "d")

    await keeper.retain()

    assert (await log.pop(group)).offsets == [3, 4]


async def test_everything_deleted_leaves_nothing_to_pop_and_the_next_push_is_served(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, retention_s=1)
    await push_over_time(log, partition, "a", "b")

    await keeper.retain()

    assert await log.pop(group) == []
    await log.push(partition, "c")
    assert (await log.pop(group)).offsets == [3]


async def test_completed_messages_go_once_every_group_is_done_with_them(log, keeper):
    partition, group = await log.partition()
    slow = await log.subscribe("hive", "slow")
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    await push_over_time(log, partition, "a", "b", "c")
    await log.pop(group, Poll(auto_ack=True))

    assert (await keeper.retain("completed")).messages == 0
    await log.pop(slow, Poll(batch=2, auto_ack=True))
    assert (await keeper.retain("completed")).messages == 2
    assert await keeper.kept(partition) == (3, 3)


async def test_completed_messages_stay_until_they_are_old(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, completed_retention_s=100)
    await push_over_time(log, partition, "a")
    await log.pop(group, Poll(auto_ack=True))

    assert (await keeper.retain("completed")).messages == 0


async def test_messages_under_lease_are_not_completed(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    await push_over_time(log, partition, "a", "b")
    poll = Poll()
    await log.pop(group, poll)

    assert (await keeper.retain("completed")).messages == 0
    await log.ack(Ack(partition, 1, poll.lease_id))
    assert (await keeper.retain("completed")).messages == 1


async def test_a_segment_of_which_a_part_is_completed_stays_as_a_whole(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    await log.push(partition, "a", "b", "c")
    await log.advance(10)
    await log.pop(group, Poll(batch=2, auto_ack=True))

    assert (await keeper.retain("completed")).messages == 0
    assert await keeper.kept(partition) == (1, 3)


async def test_defect_42_a_group_that_has_not_read_yet_protects_what_it_will_read(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    await push_over_time(log, partition, "a")
    await log.pop(group, Poll(auto_ack=True))
    newcomer = await log.subscribe("hive", "newcomer")

    assert (await keeper.retain("completed")).messages == 0
    assert (await log.pop(newcomer)).offsets == [1]


async def test_defect_42_without_any_group_nothing_counts_as_completed(log, keeper):
    [partition] = await log.provision("hive", "a")
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    await push_over_time(log, partition, "a")

    assert (await keeper.retain("completed")).messages == 0


async def test_queue_mode_that_nobody_uses_keeps_nothing(log, keeper):
    [partition] = await log.provision("hive", "a")
    reader = await log.subscribe("hive", "reader")
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    await push_over_time(log, partition, "a")
    await log.pop(reader, Poll(auto_ack=True))

    assert (await keeper.retain("completed")).messages == 1


async def test_a_partition_that_is_stuck_does_not_keep_the_others_from_being_cleared(log, keeper):
    stuck, free = await log.provision("hive", "stuck", "free")
    group = await log.subscribe("hive")
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    for number in range(6):
        await log.push(stuck, f"s{number}")
    await log.push(free, "f")
    await log.advance(10)
    await log.pop_partitions(group, Poll(partition_id=free, auto_ack=True))

    first = await keeper.retain("completed", limit=4)
    second = await keeper.retain("completed", limit=4, after=first.reached)

    assert (first.messages, first.is_done) == (0, False)
    assert (second.messages, second.is_done) == (1, True)


async def test_dead_letters_survive_the_retention_of_their_source(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, retention_s=1)
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "dlq", error="broken"))
    await log.advance(10)

    assert (await keeper.retain()).messages == 1
    assert [letter["transaction_id"] for letter in await log.dead_letters()] == ["a"]


async def test_defect_45_every_run_that_deleted_is_in_the_history_of_its_queue(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, retention_s=15, completed_retention_s=5)
    await push_over_time(log, partition, "a", "b")
    await log.pop(group, Poll(auto_ack=True))

    await keeper.retain()
    await keeper.retain("completed")
    await keeper.retain("completed")

    history = await keeper.history()
    assert [(row["kind"], row["messages"], row["segments"]) for row in history] == [
        ("retention", 1, 1),
        ("completed", 1, 1),
    ]
    assert {row["queue_id"] for row in history} == {await keeper.queue_id()}


async def test_a_queue_that_is_gone_is_no_error(log, keeper):
    query = "select * from skep.apply_retention($1, $2, $3, 0, 'retention', 0, 10)"

    assert await log.rows(query, "housekeeping", keeper.holder, keeper.run_id) == []


async def test_whoever_does_not_lead_deletes_nothing(log, keeper):
    import asyncpg

    partition, _ = await log.partition()
    await log.configure("hive", retention_enabled=True, retention_s=1)
    await push_over_time(log, partition, "a")
    usurper = Keeper(log)

    with pytest.raises(asyncpg.PostgresError) as caught:
        await usurper.retain()

    assert caught.value.sqlstate == "SK423"
    assert await keeper.kept(partition) == (1, 1)

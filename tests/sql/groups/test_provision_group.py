import asyncio
from datetime import timedelta

import pytest

from tests.sql.support.log import NOON, Poll
from tests.sql.support.waiting import eventually

SECOND = timedelta(seconds=1)


async def three_messages(log, queue="hive"):
    """Push a message a second from noon on; return the partition."""
    [partition] = await log.provision(queue, "a")
    for name in ("first", "second", "third"):
        await log.push(partition, name)
        await log.advance()
    return partition


async def popped(log, group):
    taken = await log.pop(group, Poll(auto_ack=True))
    return [message.transaction_id for message in taken.messages]


async def test_a_group_is_found_again_whatever_mode_it_is_asked_for_with(log):
    group = await log.subscribe("hive", "bees", "all")

    assert await log.subscribe("hive", "bees", "new") == group
    assert await log.value("select subscription_mode from skep.consumer_group where id = $1", group)


async def test_groups_of_the_same_name_are_apart_in_different_queues(log):
    assert await log.subscribe("hive", "bees") != await log.subscribe("wax", "bees")


async def test_a_group_of_mode_all_reads_from_the_start(log):
    await three_messages(log)

    group = await log.subscribe("hive", "bees", "all")

    assert await popped(log, group) == ["first", "second", "third"]


async def test_a_group_of_mode_new_reads_what_comes_after_it(log):
    partition = await three_messages(log)
    group = await log.subscribe("hive", "bees", "new")

    await log.push(partition, "fourth")

    assert await popped(log, group) == ["fourth"]


async def test_a_new_group_on_a_queue_without_messages_gets_the_first_one(log):
    group = await log.subscribe("hive", "bees", "new")

    await three_messages(log)

    assert await popped(log, group) == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (NOON - SECOND, ["first", "second", "third"]),
        (NOON, ["first", "second", "third"]),
        (NOON + SECOND, ["second", "third"]),
        (NOON + 3 * SECOND, []),
    ],
)
async def test_a_group_of_mode_timestamp_reads_from_that_moment_on(log, start, expected):
    await three_messages(log)

    group = await log.subscribe("hive", "bees", "timestamp", start)

    assert await popped(log, group) == expected


async def test_mode_and_start_are_kept(log):
    await log.subscribe("hive", "bees", "timestamp", NOON)

    group = await log.row("select * from skep.consumer_group where name = 'bees'")
    assert (group["subscription_mode"], group["subscribed_from"]) == ("timestamp", NOON)


async def test_deleted_messages_are_before_the_start_of_any_group(log):
    partition = await three_messages(log)
    await log.execute("update skep.partition set tail = 3")
    await log.execute("delete from skep.segment where first < 3")

    group = await log.subscribe("hive", "bees", "all")

    assert (await log.cursor(partition, group))["acked"] == 2
    assert await popped(log, group) == ["third"]


async def test_a_new_cursor_is_ready_because_a_push_may_be_in_flight(log):
    [partition] = await log.provision("hive", "a")

    group = await log.subscribe("hive", "bees", "new")

    assert (await log.cursor(partition, group))["available_at"] == NOON


async def test_messages_deleted_before_the_group_came_are_done_for_it(log):
    partition = await three_messages(log)
    await log.delete_message(partition, "second", 2)

    group = await log.subscribe("hive", "bees")

    assert await log.done(partition, group) == "{[2,3)}"
    assert await popped(log, group) == ["first", "third"]


async def test_a_group_starts_behind_deleted_messages_at_its_start(log):
    partition = await three_messages(log)
    await log.delete_message(partition, "first", 1)
    await log.delete_message(partition, "second", 2)

    group = await log.subscribe("hive", "bees")

    assert (await log.cursor(partition, group))["acked"] == 2
    assert await log.done(partition, group) is None


async def test_a_group_of_mode_new_does_not_count_what_was_deleted_before(log):
    partition = await three_messages(log)
    await log.delete_message(partition, "second", 2)

    group = await log.subscribe("hive", "bees", "new")

    assert (await log.cursor(partition, group))["acked"] == 3
    assert await log.done(partition, group) is None


async def conflation(log, asked, group="bees"):
    """Subscribe a group that wants only the newest, or not, or does not say; return what holds."""
    query = "select conflation from skep.provision_group('hive', $1, 'all', null, $2)"
    return await log.value(query, group, asked)


@pytest.mark.parametrize("asked", [None, False, True])
async def test_a_new_group_conflates_as_asked(log, asked):
    assert await conflation(log, asked) is asked
    assert await conflation(log, None) is asked


@pytest.mark.parametrize("first", [False, True])
async def test_whether_a_group_conflates_is_decided_once(log, first):
    assert await conflation(log, None) is None
    assert await conflation(log, first) is first
    assert await conflation(log, not first) is first


async def test_of_two_who_decide_at_the_same_time_the_first_counts(log, open_log):
    await conflation(log, None)
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    assert await conflation(log, asked=True) is True

    second = asyncio.get_running_loop().create_task(conflation(other, asked=False))
    observer = await open_log()
    waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1"
    await eventually(lambda: observer.value(waits, other.connection.get_server_pid()))
    await transaction.commit()

    assert await second is True


async def test_a_queue_is_not_created_when_that_is_not_wanted(log):
    missing = "select * from skep.provision_group('typo', 'bees', 'all', null, null, false)"

    assert await log.rows(missing) == []
    assert await log.value("select count(*) from skep.queue where name = 'typo'") == 0


async def test_a_group_is_subscribed_to_an_existing_queue_without_creating_any(log):
    await three_messages(log)

    [row] = await log.rows(
        "select * from skep.provision_group('hive', 'bees', 'all', null, null, false)"
    )

    assert await popped(log, row["group_id"]) == ["first", "second", "third"]

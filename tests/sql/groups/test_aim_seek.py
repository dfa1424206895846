from datetime import timedelta

import pytest

from tests.sql.support.log import NOON, Poll

AIM = "select * from skep.aim_seek($1, $2, $3, $4, $5)"
SECOND = timedelta(seconds=1)


async def five_messages(log, mode="all"):
    """Push one message a second from noon on; the group has finished two of them."""
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees", mode)
    for name in "vwxyz":
        await log.push(partition, name)
        await log.advance()
    await log.pop(group, Poll(batch=2, auto_ack=True))
    return partition, group


async def aim(log, group, partition, to, moment=None, offset=None):
    return await log.row(AIM, group, [partition], to, moment, offset)


@pytest.mark.parametrize(
    ("to", "moment", "offset", "target", "skipped", "replayed"),
    [
        ("end", None, None, 5, 3, 0),
        ("start", None, None, 0, 0, 2),
        ("timestamp", NOON - SECOND, None, 0, 0, 2),
        ("timestamp", NOON + SECOND, None, 1, 0, 1),
        ("timestamp", NOON + 2 * SECOND, None, 2, 0, 0),
        ("timestamp", NOON + 3 * SECOND, None, 3, 1, 0),
        ("timestamp", NOON + 60 * SECOND, None, 5, 3, 0),
        ("offset", None, 1, 0, 0, 2),
        ("offset", None, 5, 4, 2, 0),
        ("offset", None, 0, 0, 0, 2),
        ("offset", None, 1 << 60, 5, 3, 0),
    ],
)
async def test_a_seek_skips_what_is_unread_and_replays_what_is_finished(
    log, to, moment, offset, target, skipped, replayed
):
    partition, group = await five_messages(log)

    found = await aim(log, group, partition, to, moment, offset)

    assert (found["acked"], found["target"]) == (2, target)
    assert (found["skipped"], found["replayed"]) == (skipped, replayed)


async def test_messages_that_are_gone_are_neither_skipped_nor_replayed(log):
    partition, group = await five_messages(log)
    await log.execute("update skep.partition set tail = 2")
    await log.execute("delete from skep.segment where first < 2")
    await log.execute(
        "insert into skep.deleted_message (partition_id, message_offset) values ($1, 2), ($1, 4)",
        partition,
    )
    await log.execute("update skep.cursor set done = '{[4,5)}' where group_id = $1", group)

    to_end = await aim(log, group, partition, "end")
    to_start = await aim(log, group, partition, "start")

    assert (to_end["skipped"], to_end["replayed"]) == (2, 0)
    assert (to_start["target"], to_start["skipped"], to_start["replayed"]) == (1, 0, 0)


async def test_messages_finished_ahead_of_the_cursor_are_replayed_and_not_skipped(log):
    partition, group = await five_messages(log)
    await log.execute("update skep.cursor set done = '{[4,5)}' where group_id = $1", group)

    to_end = await aim(log, group, partition, "end")
    to_next = await aim(log, group, partition, "offset", offset=3)

    assert (to_end["skipped"], to_end["replayed"]) == (2, 0)
    assert (to_next["skipped"], to_next["replayed"]) == (0, 1)


@pytest.mark.parametrize(
    ("mode", "start", "target"),
    [("all", None, 0), ("timestamp", NOON + 3 * SECOND, 3), ("new", None, 4)],
)
async def test_the_subscription_says_where_a_group_once_started(log, mode, start, target):
    partition, group = await five_messages(log)
    await log.execute(
        """
        update skep.consumer_group
        set subscription_mode = $2, subscribed_from = $3, created_at = $4 where id = $1
        """,
        group,
        mode,
        start,
        NOON + 4 * SECOND,
    )

    assert (await aim(log, group, partition, "subscription"))["target"] == target


async def test_partitions_and_groups_that_do_not_exist_have_no_row(log):
    partition, group = await five_messages(log)

    assert await aim(log, group, partition + 1, "end") is None
    assert await aim(log, group + 1, partition, "end") is None

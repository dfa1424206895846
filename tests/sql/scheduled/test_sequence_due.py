import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support.log import Poll
from tests.sql.support.scheduling import queue_id_of, schedule, sequence, stored, waiting
from tests.support.broker import until_blocked_by


async def test_nothing_scheduled_is_nothing_to_do(log):
    assert await sequence(log) == (None, None, 0, False, None)


async def test_what_is_not_due_waits_and_the_time_until_then_is_told(log):
    await schedule(log, "x", delay_s=60)

    assert await sequence(log) == (None, None, 0, False, 60)
    assert await waiting(log) == ["x"]


async def test_due_messages_join_their_partitions_in_the_order_of_their_times(log):
    await schedule(log, "late", delay_s=30)
    await schedule(log, "early", delay_s=10)
    await schedule(log, "other", delay_s=20, partition="b")
    await schedule(log, "later", delay_s=90)
    await log.advance(60)

    answer = await sequence(log)

    assert answer == ([await queue_id_of(log)], [2], 3, False, 30)
    assert await stored(log) == ["early", "late"]
    assert await stored(log, "b") == ["other"]
    assert await waiting(log) == ["later"]


async def test_messages_of_the_same_time_keep_the_order_in_which_they_were_sent(log):
    names = [f"n{number}" for number in range(30)]
    await schedule(log, *names, delay_s=0)

    await sequence(log)

    assert await stored(log) == names


async def test_many_messages_become_segments_of_a_size(log):
    names = {each: [f"{each}{number}" for number in range(200)] for each in "ab"}
    for partition, those in names.items():
        await schedule(log, *those, delay_s=0, partition=partition)

    assert (await sequence(log)).moved == 400

    assert (await stored(log), await stored(log, "b")) == (names["a"], names["b"])
    assert await log.value("select count(*) from skep.segment") > 4


async def test_a_message_scheduled_for_the_past_is_due(log):
    await schedule(log, "x", delay_s=-5)

    assert (await sequence(log)).moved == 1


async def test_a_partition_that_waits_for_messages_is_woken(log):
    partition, group = await log.partition()
    await log.pop(group)
    assert (await log.cursor(partition, group))["available_at"] is None
    await schedule(log, "x", delay_s=0)

    await sequence(log)

    taken = await log.pop(group, Poll())
    assert [json.loads(segment.body)[0]["transactionId"] for segment in taken] == ["x"]


async def test_a_message_pushed_meanwhile_is_not_stored_twice(log):
    [partition] = await log.provision("hive", "a")
    await schedule(log, "x", "y", delay_s=10)
    await log.push(partition, "x")
    await log.advance(10)

    answer = await sequence(log)

    assert answer.moved == 2
    assert await stored(log) == ["x", "y"]
    assert await waiting(log) == []


async def test_when_all_were_pushed_meanwhile_nobody_is_woken(log):
    [partition] = await log.provision("hive", "a")
    await schedule(log, "x", delay_s=10)
    await log.push(partition, "x")
    await log.advance(10)

    assert await sequence(log) == (None, None, 1, False, None)
    assert await stored(log) == ["x"]


async def test_a_call_carries_no_more_than_it_is_told(log):
    await schedule(log, "x", "y", "z", delay_s=0)

    first = await sequence(log, limit=2)
    second = await sequence(log, limit=2)

    assert [first.moved, first.next_s, second.moved] == [2, 0, 1]
    assert await stored(log) == ["x", "y", "z"]


async def test_bytes_bound_a_call_but_one_message_always_goes(log):
    await schedule(log, "x", "y", delay_s=0)

    assert (await sequence(log, size=1)).moved == 1
    assert await stored(log) == ["x"]


async def test_a_partition_cleaned_up_meanwhile_is_created_again(log):
    await log.provision("hive", "a")
    await schedule(log, "x", delay_s=0)
    await log.execute("delete from skep.cursor; delete from skep.partition")

    assert (await sequence(log)).moved == 1
    assert await stored(log) == ["x"]


async def test_what_waits_for_a_deleted_queue_is_dropped(log):
    await schedule(log, "x", delay_s=0)
    await schedule(log, "y", delay_s=0, queue="nest")
    for table in ("consumer_group", "queue"):
        column = "id" if table == "queue" else "queue_id"
        await log.execute(
            f"delete from skep.{table} where {column} = $1", await queue_id_of(log, "hive")
        )

    await sequence(log)

    assert await waiting(log) == []
    assert await log.value("select array_agg(queue) from skep.message") == ["nest"]


async def test_one_session_at_a_time(log, open_log):
    await schedule(log, "x", delay_s=0)
    rival = await open_log()
    transaction = rival.connection.transaction()
    await transaction.start()
    await sequence(rival)

    answer = await sequence(log)
    await transaction.rollback()

    assert (answer.moved, answer.is_busy, answer.next_s) == (0, True, 0)
    assert await stored(log) == []
    assert (await sequence(log)).moved == 1


async def test_a_message_that_is_being_cancelled_is_left_alone(log, open_log):
    ids = [answer.scheduled_id for answer in await schedule(log, "x", "y", delay_s=0)]
    rival = await open_log()
    transaction = rival.connection.transaction()
    await transaction.start()
    assert await rival.value("select skep.cancel_scheduled($1)", ids[0])

    assert (await sequence(log)).moved == 1
    await transaction.commit()

    assert await stored(log) == ["y"]
    assert await waiting(log) == []


async def test_a_call_that_fails_leaves_everything_waiting(log):
    await schedule(log, "x", delay_s=0)
    transaction = log.connection.transaction()
    await transaction.start()
    await sequence(log)
    await transaction.rollback()

    assert await waiting(log) == ["x"]
    assert await stored(log) == []


async def test_pushes_and_sequencing_at_once_lose_and_double_nothing(log, open_log):
    partitions = await log.provision("hive", "a", "b")
    names = [f"n{number}" for number in range(40)]
    await schedule(log, *names, delay_s=0)
    await schedule(log, *names, delay_s=0, partition="b")
    rivals = [await open_log() for _ in range(3)]

    async def push(rival):
        for name in names[::2]:
            await rival.push_writes({partition: [name] for partition in partitions})

    async def move(rival):
        while await waiting(rival):
            await sequence(rival, limit=7)

    await asyncio.gather(push(rivals[0]), move(rivals[1]), move(rivals[2]))

    assert sorted(await stored(log)) == sorted(names)
    assert sorted(await stored(log, "b")) == sorted(names)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plans=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.sampled_from("uvwxyz")),
        unique_by=lambda plan: (plan[0], plan[2]),
    ),
    limit=st.integers(1, 5),
)
def test_every_message_arrives_once_and_in_the_order_of_its_time(log, arun, plans, limit):
    async def run():
        await log.clear()
        for partition, delay_s, name in plans:
            await schedule(log, name, delay_s=delay_s, partition=partition)
        for _ in range(10):
            while (await sequence(log, limit=limit)).moved:
                pass
            await log.advance(1)
        return {partition: await stored(log, partition) for partition in "abc"}

    expected = {
        partition: [
            name for where, _, name in sorted(plans, key=lambda plan: plan[1]) if where == partition
        ]
        for partition in "abc"
    }
    assert arun(run()) == expected


async def test_what_waits_for_a_queue_that_is_deleted_meanwhile_is_dropped(log, open_log):
    await schedule(log, "x", delay_s=0)
    other = await open_log()

    async with other.connection.transaction():
        await other.execute("select from skep.queue where name = 'hive' for update")
        moving = asyncio.create_task(sequence(log))
        await until_blocked_by(other.connection)
        await other.execute("select skep.remove_queue('hive')")
    await moving

    assert await log.value("select count(*) from skep.queue") == 0
    assert await log.value("select count(*) from skep.scheduled") == 0


async def test_of_messages_that_came_to_wait_without_a_window_the_first_is_stored_with_one(log):
    await log.configure("hive", dedup_window_s=0)
    await schedule(log, "x", "y", "x", delay_s=1)
    await log.configure("hive", dedup_window_s=3600)
    await log.advance(1)

    assert (await sequence(log)).moved == 3
    assert await stored(log) == ["x", "y"]
    assert await waiting(log) == []

import asyncio
from datetime import timedelta

import pytest

from tests.sql.support.scheduling import queue_id_of, schedule, sequence, stored, waiting
from tests.support.broker import until_blocked_by


async def test_a_message_waits_outside_the_log(log):
    [answer] = await schedule(log, "x", delay_s=60)

    assert (answer.outcome, answer.seconds) == ("scheduled", 60)
    assert answer.deliver_at == log.now + timedelta(seconds=60)
    assert await waiting(log) == ["x"]
    assert await log.value("select count(*) from skep.segment") == 0


async def test_a_time_stands_over_a_delay(log):
    at = log.now + timedelta(hours=2)

    [answer] = await schedule(log, "x", at=at, delay_s=5)

    assert answer.deliver_at == at


async def test_a_waiting_message_makes_another_of_its_name_a_duplicate(log):
    [first] = await schedule(log, "x", delay_s=60)

    again, new = await schedule(log, "x", "y", delay_s=5)

    assert (again.outcome, again.scheduled_id) == ("duplicate", first.scheduled_id)
    assert again.deliver_at == first.deliver_at
    assert new.outcome == "scheduled"


async def test_names_count_per_partition_and_queue(log):
    await schedule(log, "x")

    [elsewhere] = await schedule(log, "x", partition="b")
    [otherwise] = await schedule(log, "x", queue="nest")

    assert [elsewhere.outcome, otherwise.outcome] == ["scheduled", "scheduled"]


async def test_a_stored_message_makes_a_scheduled_one_of_its_name_a_duplicate(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "w", "x")

    [answer] = await schedule(log, "x")

    assert (answer.outcome, answer.partition_id, answer.message_offset) == (
        "duplicate",
        partition,
        2,
    )
    assert await waiting(log) == []


async def test_each_of_many_items_is_told_which_stored_message_it_repeats(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: ["v", "w", "x"], b: ["x"]})

    answers = await schedule(log, "new", "x", "other", "v")

    found = [(answer.outcome, answer.partition_id, answer.message_offset) for answer in answers]
    scheduled = ("scheduled", None, None)
    assert found == [scheduled, ("duplicate", a, 3), scheduled, ("duplicate", a, 1)]


async def test_outside_the_window_a_stored_message_does_not_count(log):
    await log.configure("hive", dedup_window_s=60)
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")
    await log.advance(61)

    [answer] = await schedule(log, "x")

    assert answer.outcome == "scheduled"


async def test_a_repeated_call_knows_what_it_scheduled(log):
    [first] = await schedule(log, "x")

    [again] = await schedule(log, "x", resolve=True)

    assert (again.outcome, again.scheduled_id) == ("scheduled", first.scheduled_id)


async def test_a_full_queue_takes_no_more_and_others_do(log):
    await schedule(log, "x", "y", most=2)

    [refused] = await schedule(log, "z", most=2)
    [known] = await schedule(log, "y", most=2)
    [other] = await schedule(log, "z", queue="nest", most=2)

    assert [refused.outcome, known.outcome, other.outcome] == ["full", "duplicate", "scheduled"]
    assert await waiting(log) == ["x", "y", "z"]


async def test_a_queue_that_is_gone_is_told(log):
    rows = await log.rows(
        """
        select outcome from skep.schedule_messages(
          array[0], array['a'], array['k'::bytea], array['x'], array['{}'::bytea],
          array[null::timestamptz], array[1.0], 10, false)
        """
    )

    assert [row[0] for row in rows] == ["gone"]


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_rival_with_the_same_name_is_waited_for(log, open_log, is_kept):
    await queue_id_of(log)  # there before both, or its creation would be waited for
    rival = await open_log()
    transaction = rival.connection.transaction()
    await transaction.start()
    [theirs] = await schedule(rival, "x")

    ours = asyncio.create_task(schedule(log, "x"))
    await until_blocked_by(rival.connection)
    await (transaction.commit() if is_kept else transaction.rollback())
    [answer] = await ours

    assert answer.outcome == ("again" if is_kept else "scheduled")
    [known] = await schedule(log, "x")
    assert (known.outcome, known.scheduled_id) == (
        "duplicate",
        theirs.scheduled_id if is_kept else answer.scheduled_id,
    )


async def test_two_calls_with_the_same_names_never_wait_for_each_other_in_a_circle(log, open_log):
    rival = await open_log()
    names = [f"n{number}" for number in range(50)]

    await asyncio.gather(schedule(log, *names), schedule(rival, *reversed(names)))

    assert sorted(await waiting(log)) == sorted(names)


async def test_a_name_is_free_again_once_its_message_is_outside_window_and_schedule(log):
    await log.configure("hive", dedup_window_s=0)
    await schedule(log, "x", delay_s=0)
    await sequence(log)

    [answer] = await schedule(log, "x")

    assert answer.outcome == "scheduled"


async def test_without_a_window_every_message_waits_of_one_call_and_of_several(log):
    await log.configure("hive", dedup_window_s=0)

    answers = [*await schedule(log, "x", "x"), *await schedule(log, "x")]

    assert [answer.outcome for answer in answers] == ["scheduled"] * 3
    assert len({answer.scheduled_id for answer in answers}) == 3
    await log.advance(60)
    await sequence(log)
    assert await stored(log) == ["x", "x", "x"]


async def test_without_a_window_a_repeated_call_finds_its_own_messages_by_their_nonces(log):
    await log.configure("hive", dedup_window_s=0)
    lost = await schedule(log, "x", "x", nonces=[7, 8])
    await schedule(log, "x")

    again = await schedule(log, "x", "x", nonces=[7, 8], resolve=True)

    assert again == lost
    assert await waiting(log) == ["x", "x", "x"]


async def test_of_messages_with_one_name_in_a_call_the_first_waits(log):
    first, twin = await schedule(log, "x", "x")

    assert [first.outcome, twin.outcome] == ["scheduled", "duplicate"]
    assert first.scheduled_id == twin.scheduled_id

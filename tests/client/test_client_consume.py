"""Consuming with the client: loops, workers, leases, verdicts."""

import asyncio
import os
import signal
import threading
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from skep.client import (
    RETRY,
    BadRequest,
    DeadLetterMessage,
    LeaseLost,
    RetryMessage,
    dead_letter,
    failed,
)


async def lag(client, queue, group="g"):
    return (await client.groups.lag(group, queue)).offset_lag


@pytest.fixture
def quick_retries(queen, queue, arun):
    """Let failures of the queue be repeated at once."""
    arun(queen.queues.configure(queue, retryDelay=0, retryLimit=1))


async def test_messages_come_in_order_and_are_done_when_the_next_is_asked_for(queen, queue):
    await queen.push_many(queue, range(250), partition="one")
    seen = []

    async for message in queen.consume(queue, group="g", batch=100, limit=250):
        seen.append(message.data)

    assert seen == list(range(250))
    assert await lag(queen, queue) == 0


async def test_leaving_the_loop_gives_back_the_message_at_hand_and_the_rest(queen, queue):
    await queen.push_many(queue, range(10), partition="one")

    messages = queen.consume(queue, group="g").each()
    async for message in messages:
        if message.data == 3:
            break
    await messages.aclose()
    again = await queen.pop(queue, group="g", batch=10)

    assert [message.data for message in again] == list(range(3, 10))


async def test_a_message_settled_before_leaving_is_not_given_back(queen, queue):
    await queen.push_many(queue, range(5), partition="one")

    messages = queen.consume(queue, group="g").each()
    async for message in messages:
        await message.ack()
        assert message.is_settled
        break
    await messages.aclose()

    assert [message.data for message in await queen.pop(queue, group="g", batch=9)] == [1, 2, 3, 4]


async def test_a_block_that_ends_well_completes_the_message_at_hand(queen, queue):
    await queen.push_many(queue, range(3), partition="one")

    async with queen.consume(queue, group="g") as messages:
        async for _ in messages:
            break

    assert [message.data for message in await queen.pop(queue, group="g", batch=9)] == [1, 2]


@pytest.mark.usefixtures("quick_retries")
async def test_a_block_that_raises_fails_the_message_at_hand(queen, queue):
    await queen.push_many(queue, range(3), partition="one")

    async def divide():
        async with queen.consume(queue, group="g") as messages:
            async for message in messages:
                _ = 1 / message.data

    with pytest.raises(ZeroDivisionError):
        await divide()
    again = await queen.pop(queue, group="g", batch=9, wait_s=5)

    assert [message.data for message in again] == [0, 1, 2]
    assert again[0].retry_count == 1


async def test_whole_batches_are_done_with_the_next(queen, queue):
    await queen.push_many(queue, range(25), partition="one")
    sizes = []

    async for batch in queen.consume(queue, group="g", batch=10, idle_s=0).batches():
        sizes.append(len(batch))
        if len(sizes) == 1:
            await batch[-1].ack()

    assert sizes == [10, 10, 5]
    assert await lag(queen, queue) == 0


async def test_a_batch_that_nobody_looked_at_is_given_back(queen, queue):
    await queen.push_many(queue, range(3), partition="one")
    consumption = queen.consume(queue, group="g", idle_s=0)

    async with aclosing(consumption.batches()) as batches:
        async for _ in batches:
            break
    again = await queen.pop(queue, group="g", batch=10)

    assert [message.data for message in again] == [0, 1, 2]


async def test_the_verdict_on_one_message_tells_of_those_before_it_too(queen, queue):
    await queen.push_many(queue, range(4), partition="one")
    seen = []

    async for message in queen.consume(queue, group="g", limit=4):
        seen.append(message.data)
        if message.data == 2:
            await message.ack()
            assert await lag(queen, queue) == 1

    assert seen == [0, 1, 2, 3]
    assert await lag(queen, queue) == 0


async def test_consuming_ends_when_it_is_quiet(queen, queue):
    await queen.push(queue, 1)

    seen = [message.data async for message in queen.consume(queue, idle_s=0.2)]

    assert seen == [1]


async def test_a_consumer_that_waits_can_be_stopped(queen, queue):
    consumption = queen.consume(queue, wait_s=30)

    async def consume():
        return [message async for message in consumption]

    waiting = asyncio.ensure_future(consume())
    await asyncio.sleep(0)
    consumption.stop()

    async with asyncio.timeout(20):
        assert await waiting == []


async def test_a_namespace_is_consumed_across_its_queues(queen, queue):
    await queen.queues.configure(f"{queue}.a", namespace=queue)
    await queen.queues.configure(f"{queue}.b", namespace=queue)
    await queen.push(f"{queue}.a", 1)
    await queen.push(f"{queue}.b", 2)

    seen = {
        (message.queue, message.data)
        async for message in queen.consume(namespace=queue, group="g", idle_s=0.2)
    }

    assert seen == {(f"{queue}.a", 1), (f"{queue}.b", 2)}
    assert await lag(queen, f"{queue}.a") == await lag(queen, f"{queue}.b") == 0


async def test_a_new_group_may_start_with_what_comes_or_at_a_time(queen, queue):
    await queen.push(queue, "old")
    between = datetime.now(UTC)
    assert await queen.pop(queue, group="warm-up") != []
    async for _ in queen.consume(queue, group="new", start="new", idle_s=0):
        pytest.fail("it is older than the group")
    await queen.push(queue, "young")

    new = [message.data async for message in queen.consume(queue, group="new", idle_s=0)]
    since = [
        message.data
        async for message in queen.consume(queue, group="since", start=between, idle_s=0)
    ]

    assert new == since == ["young"]


async def test_acknowledging_on_delivery_needs_no_lease(queen, queue):
    await queen.push_many(queue, range(3))

    seen = []
    async for message in queen.consume(queue, group="g", auto_ack=True, idle_s=0):
        seen.append(message.data)
        await message.ack()
        assert message.lease_id == ""

    assert seen == [0, 1, 2]
    assert await lag(queen, queue) == 0


async def test_consuming_nothing_in_particular_is_refused(queen):
    with pytest.raises(BadRequest, match="queue"):
        queen.consume()


@pytest.mark.usefixtures("quick_retries")
async def test_what_a_handler_does_decides_what_becomes_of_its_message(queen, queue):
    words = ["fine", "fails", "again", "poison", "returned"]
    for word in words:
        await queen.push(queue, word, partition=word)
    calls = []

    @queen.worker(queue, group="g", idle_s=0.3, concurrency=2)
    async def handle(message):
        calls.append(message.data)
        match message.data:
            case "fails":
                raise ValueError("no")
            case "again" if calls.count("again") == 1:
                raise RetryMessage
            case "poison":
                raise DeadLetterMessage("never")
            case "returned":
                return dead_letter("as a value")
        return None

    await handle.run()
    letters = {
        letter.data: letter.error_message
        for letter in (await queen.dead_letters.find(queue=queue)).messages
    }

    assert sorted(calls) == ["again", "again", "fails", "fails", "fine", "poison", "returned"]
    assert letters == {"fails": "ValueError: no", "poison": "never", "returned": "as a value"}
    assert handle.handled == 7
    assert await lag(queen, queue) == 0


@pytest.mark.usefixtures("quick_retries")
async def test_defect_21_nothing_of_a_partition_is_handled_after_a_failure_in_its_batch(
    queen, queue
):
    await queen.push_many(queue, range(6), partition="one")
    calls = []

    @queen.worker(queue, group="g", batch=6, idle_s=0.3)
    async def handle(message):
        calls.append(message.data)
        return failed("once") if calls.count(2) == 1 and message.data == 2 else None

    await handle.run()

    assert calls == [0, 1, 2, 2, 3, 4, 5]
    assert await lag(queen, queue) == 0


async def test_a_failure_of_a_handler_is_in_the_log_with_its_message_and_traceback(
    queen, queue, quick_retries, caplog
):
    await queen.push(queue, 7, partition="one", transaction_id="seven")

    @queen.worker(queue, group="g", idle_s=0.3)
    async def broken(message):
        raise KeyError(message.data)

    await broken.run()

    first, again = caplog.records
    (letter,) = (await queen.dead_letters.find(queue=queue)).messages
    assert first.getMessage() == (
        f"Handler failed on message {letter.id} of queue {queue}, group g, partition one, "
        "attempt 1 (failed): KeyError: 7"
    )
    assert first.exc_info[2].tb_frame.f_code.co_name == "broken"  # the first frame is the user's
    assert "attempt 2 (failed)" in again.getMessage()
    assert again.exc_info is None


async def test_a_handler_may_take_whole_batches_and_settle_some_by_itself(queen, queue):
    await queen.push_many(queue, range(4), partition="one")
    seen = []

    @queen.worker(queue, group="g", by_batch=True, idle_s=0.2)
    async def handle(batch):
        seen.append([message.data for message in batch])
        await batch[0].dead_letter("the first")

    await handle.run()

    assert seen == [[0, 1, 2, 3]]
    assert (await queen.dead_letters.find(queue=queue)).total == 1
    assert await lag(queen, queue) == 0


async def test_handlers_that_are_plain_functions_run_in_threads(queen, queue):
    await queen.push_many(queue, range(2), partition=str)
    both = threading.Barrier(2, timeout=10)

    @queen.worker(queue, group="g", concurrency=2, partitions=1, idle_s=0.3)
    def handle(message):
        both.wait()

    await handle.run()

    assert handle.handled == 2


async def test_a_worker_stops_on_a_signal_after_the_message_at_hand(queen, queue):
    await queen.push_many(queue, range(5), partition="one")

    @queen.worker(queue, group="g")
    async def handle(message):
        os.kill(os.getpid(), signal.SIGTERM)
        await handle._stop._event.wait()

    async with asyncio.timeout(20):
        await handle.run()

    assert handle.handled == 1
    assert await lag(queen, queue) == 4
    assert len(await queen.pop(queue, group="g", batch=9)) == 4


async def test_a_worker_that_waits_can_be_stopped(queen, queue):
    handled = asyncio.Event()

    @queen.worker(queue, group="g", concurrency=2)
    async def handle(message):
        handled.set()

    running = asyncio.ensure_future(handle.run(handle_signals=False))
    await queen.push(queue, 1)
    await handled.wait()
    handle.stop()

    async with asyncio.timeout(20):
        await running


async def test_a_lease_is_renewed_while_a_handler_holds_up_the_event_loop(queen, queue):
    await queen.push(queue, 1)
    released = threading.Event()
    others = []

    def look_from_outside():
        # From another thread, because this one's loop is held up: a second consumer finds nothing
        # for longer than the lease lasts, so somebody renews it.
        async def poll():
            async with type(queen)(queen.session.options.urls) as other:
                others.extend(await other.pop(queue, group="g", wait_s=2.5))

        asyncio.run(poll())
        released.set()

    async for message in queen.consume(queue, group="g", lease_s=1, limit=1):
        threading.Thread(target=look_from_outside).start()
        assert released.wait(20)
        await message.ack()

    assert others == []
    assert await lag(queen, queue) == 0


async def test_who_lost_the_lease_is_told(queen, queue):
    await queen.push(queue, 1)
    (message,) = await queen.pop(queue, group="g")
    await queen.groups.seek("g", queue, "start")

    with pytest.raises(LeaseLost):
        await message.ack()
    with pytest.raises(LeaseLost):
        await queen.extend_lease(message)


async def test_nothing_more_is_handled_once_the_lease_is_lost(queen, queue):
    await queen.push_many(queue, range(3), partition="one")
    seen = []

    async for message in queen.consume(queue, group="g", limit=3, lease_s=60):
        seen.append(message.data)
        message.settlement.lease.is_lost = True

    assert seen == [0]


async def test_a_single_pop_is_settled_by_hand(queen, queue):
    await queen.queues.configure(queue, retryDelay=0)
    await queen.push_many(queue, range(4), partition=str)
    messages = await queen.pop(queue, group="g", batch=4, partitions=4)

    first, *others = messages
    ends_at = await queen.extend_lease(first, 120)
    results = await queen.ack(others)
    await first.fail("not yet")
    (again,) = await queen.pop(queue, group="g", wait_s=5)
    await again.retry()

    assert ends_at > datetime.now(UTC)
    assert [result.success for result in results] == [True] * 3
    assert (again.id, again.retry_count) == (first.id, 1)
    assert await lag(queen, queue) == 1


async def test_many_messages_may_be_given_the_same_verdict(queen, queue):
    await queen.push_many(queue, range(2))
    messages = await queen.pop(queue, group="g", batch=2)

    results = await queen.ack(messages, RETRY)

    assert [result.success for result in results] == [True, True]
    assert len(await queen.pop(queue, group="g", batch=2)) == 2
    assert await queen.ack([]) == []


async def test_a_replay_reads_everything_again_and_leaves_no_trace(queen, queue):
    await queen.push_many(queue, range(5))
    async for _ in queen.consume(queue, group="g", limit=5):
        pass

    replayed = [message.data async for message in queen.replay(queue, idle_s=0.1)]
    groups = [entry.name for entry in await queen.groups.find(queue=queue)]

    assert replayed == [0, 1, 2, 3, 4]
    assert groups == ["g"]


def test_the_blocking_client_consumes_with_threads(bee, queue):
    bee.push_many(queue, range(20), partition=lambda number: str(number % 4))
    seen = []

    @bee.worker(queue, group="g", concurrency=3, partitions=1, idle_s=0.3)
    def handle(message):
        seen.append(message.data)

    handle.run()

    assert sorted(seen) == list(range(20))
    assert bee.groups.lag("g", queue).offset_lag == 0


def test_a_blocking_consumer_that_waits_can_be_stopped_by_another_thread(bee, queue):
    consumption = bee.consume(queue, wait_s=30)
    bee.push(queue, 1)
    got_one = threading.Event()
    ended = threading.Event()

    def consume():
        for _ in consumption:
            got_one.set()
        ended.set()

    threading.Thread(target=consume, daemon=True).start()
    assert got_one.wait(60)
    consumption.stop()

    assert ended.wait(20)


def test_a_blocking_loop_that_is_left_gives_back_the_rest(bee, queue):
    bee.push_many(queue, range(3), partition="one")

    with bee.consume(queue, group="g") as messages:
        for _ in messages:
            break

    assert [message.data for message in bee.pop(queue, group="g", batch=9)] == [1, 2]

"""A call reads a segment once, however many of its messages become dead letters."""

import pytest

from tests.sql.support.housekeeping import Keeper
from tests.sql.support.log import Ack, Poll

LETTERS = 4_000
NAMES = [f"message {number}" for number in range(LETTERS)]


async def rows_read(log, call):
    """Return what a call answers and how many rows of segments it read, with their toast."""
    counter = """
        select sum(pg_stat_get_xact_tuples_fetched(i.indexrelid))
        from pg_class c join pg_index i on i.indrelid in (c.oid, c.reltoastrelid)
        where c.oid = 'skep.segment'::regclass
        """
    async with log.connection.transaction():
        before = await log.value(counter)
        answer = await call()
        return answer, await log.value(counter) - before


async def body_rows(log):
    """Return how many rows one look at all bodies reads."""
    query = "select md5(body) from skep.segment where partition_id > 0"
    _, count = await rows_read(log, lambda: log.rows(query))
    return count


@pytest.mark.parametrize("ack_mode", ["cumulative", "individual"])
@pytest.mark.parametrize(("status", "retry_limit"), [("dlq", 3), ("failed", 0)])
async def test_thousands_of_letters_out_of_one_segment_read_it_once(
    log, ack_mode, status, retry_limit
):
    partition, group = await log.partition()
    await log.set_options("hive", ack_mode=ack_mode, retry_limit=retry_limit)
    await log.push(partition, *NAMES)
    poll = Poll(batch=LETTERS)
    await log.pop(group, poll)
    acks = [
        Ack(partition, offset, poll.lease_id, status, error=f"error of {name}")
        for offset, name in enumerate(NAMES, 1)
    ]

    outcomes, read = await rows_read(log, lambda: log.outcomes(*acks))

    assert outcomes == ["dead_lettered"] * LETTERS
    letters = await log.dead_letters()
    assert [(row["message_offset"], row["transaction_id"], row["error"]) for row in letters] == [
        (offset, name, f"error of {name}") for offset, name in enumerate(NAMES, 1)
    ]
    assert read <= await body_rows(log) + LETTERS + 10, "one look at the body, and one per place"


async def test_a_step_of_eviction_reads_a_segment_once(log):
    keeper = await Keeper.appoint(log)
    partition, _ = await log.partition()
    await log.configure("hive", max_wait_time_s=60)
    await log.push(partition, *NAMES)
    await log.advance(61)

    step, read = await rows_read(log, lambda: keeper.evict(limit=LETTERS))

    assert (step.messages, step.letters) == (LETTERS, LETTERS)
    assert read <= await body_rows(log) + LETTERS + 10


async def test_thousands_of_letters_named_by_their_transaction_ids_take_seconds(log):
    partition, group = await log.partition()
    names = [f"message {number}" for number in range(6_000)]
    await log.push(partition, *names)
    poll = Poll(batch=len(names))
    await log.pop(group, poll)
    acks = [Ack(partition, None, poll.lease_id, "dlq", transaction_id=name) for name in names]

    async with log.connection.transaction():
        # It took more than a minute; now it takes two seconds.
        await log.execute("set local statement_timeout = '25s'")
        assert await log.outcomes(*acks) == ["dead_lettered"] * len(names)

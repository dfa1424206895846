"""State rows of a shard. They are changed through commit_cycle, which locks the shard first."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support.log import Ack, Poll
from tests.sql.support.streaming import (
    BYTES_MAX,
    WINDOW_KEY,
    StateOp,
    clear_streams,
    cycle,
    register,
    state,
)


@pytest.fixture
def shard(arun, log):
    async def make():
        await clear_streams(log)
        partition, _ = await log.partition()
        return (await register(log))["query_id"], partition

    return arun(make())


async def size(log, shard):
    query = "select row_count, byte_count from skep.stream_shard where partition_id = $1"
    return tuple(await log.row(query, shard[1]))


async def version(log, shard, key):
    query = "select version from skep.read_state($1, $2, array[$3], null, null)"
    return await log.value(query, *shard, key)


async def test_operations_are_applied_in_their_order(log, shard):
    settled = await cycle(
        log, *shard, StateOp("a", "1"), StateOp("b", "2"), StateOp("a"), StateOp("b", "33")
    )

    assert settled.row["state_count"] == 4
    assert await state(log, *shard) == {"b": "33"}
    assert await size(log, shard) == (1, 3)


@pytest.mark.parametrize("key", ["k", WINDOW_KEY])
async def test_a_flush_must_find_the_rows_it_deletes(log, shard, key):
    await cycle(log, *shard, StateOp(key, "1"))

    first = await cycle(log, *shard, StateOp("other", "1"), StateOp(key))
    second = await cycle(log, *shard, StateOp("third", "1"), StateOp(key))

    assert [first.refusal, second.refusal] == [None, ("state_gone", 2)]
    assert await state(log, *shard) == {"other": "1"}


@pytest.mark.parametrize(("key", "refusal"), [("k", None), (WINDOW_KEY, ("state_gone", 1))])
async def test_with_an_ack_only_windows_must_be_there(log, shard, key, refusal):
    _, partition = shard
    group = await log.subscribe()
    await log.push(partition, "x")
    poll = Poll()
    await log.pop(group, poll)

    settled = await cycle(log, *shard, StateOp(key), acks=[Ack(partition, 1, poll.lease_id)])

    assert settled.refusal == refusal


async def test_a_row_must_have_the_version_that_was_read(log, shard):
    await cycle(log, *shard, StateOp("k", "1"))
    read = await version(log, shard, "k")
    await cycle(log, *shard, StateOp("k", "2"))

    for stale in (StateOp("k", "3", version=read), StateOp("k", version=read),
                  StateOp("k", "3", version=0)):  # fmt: skip
        assert (await cycle(log, *shard, stale)).refusal == ("state_changed", 1)

    current = await version(log, shard, "k")
    assert (await cycle(log, *shard, StateOp("k", version=current))).refusal is None
    assert (await cycle(log, *shard, StateOp("k", "4", version=0))).refusal is None


async def test_a_row_made_again_never_has_an_old_version(log, shard):
    await cycle(log, *shard, StateOp("k", "1"))
    old = await version(log, shard, "k")

    await cycle(log, *shard, StateOp("k"), StateOp("k", "1"))

    assert await version(log, shard, "k") > old


async def leased(log, shard):
    """Push a message into the shard's partition and lease it; return its ack."""
    group = await log.subscribe()
    pushed = await log.push(shard[1], f"{await log.value('select gen_random_uuid()')}")
    poll = Poll()
    await log.advance()
    await log.pop(group, poll)
    return Ack(shard[1], pushed.first, poll.lease_id)


async def test_a_window_flushed_since_the_shard_was_read_is_not_put_back(log, shard):
    await cycle(log, *shard, StateOp(WINDOW_KEY, "1"), StateOp("other", "1"))
    await state(log, *shard)
    await cycle(log, *shard, StateOp(WINDOW_KEY))
    ack = await leased(log, shard)

    stale = await cycle(log, *shard, StateOp(WINDOW_KEY, "2"), acks=[ack])

    assert stale.refusal == ("state_gone", 1)
    assert await state(log, *shard) == {"other": "1"}


@pytest.mark.parametrize("way", ["read", "refused", "acknowledged"])
async def test_a_window_that_was_flushed_may_be_opened_again(log, shard, way):
    await cycle(log, *shard, StateOp(WINDOW_KEY, "1"))
    await cycle(log, *shard, StateOp(WINDOW_KEY))
    if way == "read":
        await state(log, *shard)
    elif way == "refused":
        await cycle(log, *shard, StateOp(WINDOW_KEY, "2"), acks=[await leased(log, shard)])
    else:
        await cycle(log, *shard, acks=[await leased(log, shard)])
    await log.advance(1000)

    again = await cycle(log, *shard, StateOp(WINDOW_KEY, "2"), acks=[await leased(log, shard)])

    assert again.refusal is None


async def test_a_shard_may_not_grow_beyond_its_bound_but_may_shrink(log, shard):
    await cycle(log, *shard, StateOp("a", f'"{"x" * 500}"'))
    full = f'"{"x" * BYTES_MAX}"'

    refused = await cycle(log, *shard, StateOp("b", full))
    await log.execute("update skep.stream_shard set byte_count = 5000")
    shrunk = await cycle(log, *shard, StateOp("a", "1"))

    assert [refused.refusal, shrunk.refusal] == [("shard_full", 1), None]
    assert list(await state(log, *shard)) == ["a"]


operations = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 10**6)), min_size=1, max_size=8
)


# Each example has a query of its own.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(cycles=st.lists(operations, max_size=4))
def test_state_is_what_a_dictionary_would_be_and_its_size_is_known(arun, log, cycles):
    async def check():
        await clear_streams(log)
        await log.clear()
        partition, _ = await log.partition()
        shard = (await register(log))["query_id"], partition
        rows = {}
        await cycle(log, *shard)
        for ops in cycles:
            after = dict(rows)
            is_done = True
            for key, value in ops:
                if value is not None:
                    after[key] = str(value)
                elif after.pop(key, None) is None:
                    is_done = False
                    break
            sent = [StateOp(key, None if value is None else str(value)) for key, value in ops]
            assert ((await cycle(log, *shard, *sent)).refusal is None) == is_done
            rows = after if is_done else rows
        assert await state(log, *shard) == dict(sorted(rows.items()))
        assert await size(log, shard) == (len(rows), sum(1 + len(v) for v in rows.values()))

    arun(check())

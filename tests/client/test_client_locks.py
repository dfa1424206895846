"""Locks and semaphores through both clients."""

import asyncio

import pytest

from skep.client import Client, LeaseLost, Refused


async def test_a_lock_is_held_in_its_block_and_free_behind_it(queen, queue):
    async with queen.lock(queue, ttl_s=30) as lock:
        token = lock.token
        [holder] = await queen.locks.holders(queue)
        assert (holder.owner, holder.token, lock.is_held) == (lock.owner, token, True)
        with pytest.raises(Refused, match="held by another"):
            async with queen.lock(queue, ttl_s=30):
                pass

    assert await queen.locks.holders(queue) == []
    with pytest.raises(LeaseLost):
        _ = lock.token
    async with queen.lock(queue, ttl_s=30) as again:
        assert again.token > token


async def test_a_guard_keeps_a_holder_that_was_replaced_from_changing_keys(queen, queue):
    put = {"op": "put", "ns": queue, "key": "k", "value": 1, "forever": True}
    lock = queen.lock(queue, ttl_s=30, renews=False)
    await lock.acquire()
    held = await queen.kv.call([lock.guard, put])
    await queen.locks.release(queue, lock.token)
    await queen.lock(queue, ttl_s=30, renews=False).acquire()
    lost = await queen.kv.call([lock.guard, put])

    assert [each["applied"] for each in held + lost] == [True, True, False, False]
    assert not await lock.renew()
    assert not lock.is_held


async def test_a_renewal_has_a_higher_token_and_asking_again_changes_nothing(queen, queue):
    lock = queen.lock(queue, ttl_s=30, renews=False)
    await lock.acquire()
    token = lock.token

    assert await lock.acquire()
    assert lock.token == token
    assert await lock.renew()
    assert lock.token > token
    assert await lock.release()
    assert not await lock.release()


async def test_a_lock_that_its_owner_held_before_is_held_for_a_whole_time_to_live(queen, queue):
    locks = [queen.lock(queue, ttl_s=30, owner="me", renews=False) for _ in range(2)]
    for lock in locks:
        assert await lock.acquire()
    [holder] = await queen.locks.holders(queue)

    assert locks[0].token < locks[1].token == holder.token
    assert holder.renewed_at > holder.since


async def test_a_lock_is_released_though_the_answer_of_its_last_renewal_was_lost(queen, queue):
    lock, again = [queen.lock(queue, ttl_s=30, owner="me", renews=False) for _ in range(2)]
    await lock.acquire()
    await again.acquire()
    await again.renew()

    assert await lock.release()
    assert await queen.locks.holders(queue) == []


async def test_who_waits_for_a_lock_gets_it_when_it_is_released(queen, queue):
    first = queen.lock(queue, ttl_s=30)
    await first.acquire()
    waiting = asyncio.create_task(queen.lock(queue, ttl_s=30, renews=False).acquire(60))
    async with asyncio.timeout(60):
        while await queen.kv.get("skep-lock-lines", queue) is None:
            await asyncio.sleep(0)
    await first.release()

    assert await waiting


async def test_a_lock_outlives_its_time_to_live_while_it_is_renewed(queen, queue):
    async with queen.lock(queue, ttl_s=1) as lock:
        first = lock.token
        async with asyncio.timeout(60):
            while lock.token == first:
                await asyncio.sleep(0)
        assert not await queen.lock(queue, ttl_s=1).acquire()


def test_a_semaphore_of_the_blocking_client_has_its_permits(broker, queue):
    with Client(broker.url) as client:
        permits = [client.semaphore(queue, 2, ttl_s=30) for _ in range(3)]

        assert [each.acquire() for each in permits] == [True, True, False]
        assert sorted(each.slot for each in permits[:2]) == [0, 1]
        assert permits[0].release()
        assert permits[2].acquire()
        assert [permits[1].release(), permits[2].release()] == [True, True]

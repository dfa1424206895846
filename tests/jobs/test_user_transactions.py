"""Chains in the transactions of every driver: there if and only if the transaction commits."""

import asyncio

import pytest

from skep.jobs import ChainFilter, Ctx, JobTypes, Start, consume
from skep.model.envelopes import build_envelope
from tests.enqueue.support.drivers import ASYNC, SYNC
from tests.jobs.support.shop import Basket, Order, charge, price, total
from tests.sql.support.log import Log


class Undone(Exception):
    """Rolls a transaction back."""


async def states(client):
    chains = await client.inspection.chains(ChainFilter())
    return sorted((chain.type, chain.state) for chain in chains.items)


@pytest.mark.parametrize("driver", ASYNC)
async def test_chains_start_and_end_in_a_transaction(client, database_url, driver):
    async with ASYNC[driver](database_url) as connection:
        part = await client.start(price, 7, tx=connection, key="seven")
        whole = await client.start(total, Basket("all", [part.ref]), tx=connection)
        async with client.resolve(part.id, price, tx=connection) as pending:
            pending.finish(pending.input)
        assert await states(client) == []

    assert await states(client) == [("price", "completed"), ("total", "open")]
    async with ASYNC[driver](database_url) as connection:
        await client.cancel(whole.id, tx=connection, reason="enough")
    assert await states(client) == [("price", "completed"), ("total", "cancelled")]


async def start_and_undo(client, transaction):
    async with transaction as connection:
        await client.start(charge, Order(1), tx=connection)
        raise Undone


@pytest.mark.parametrize("driver", ASYNC)
async def test_a_rollback_leaves_no_chain(client, database_url, driver):
    with pytest.raises(Undone):
        await start_and_undo(client, ASYNC[driver](database_url))

    assert await states(client) == []


def start_blocking(client, transaction, number, *, is_undone):
    with transaction as connection:
        client.start_sync(Start(charge, Order(number), key=str(number)), tx=connection)
        if is_undone:
            raise Undone


@pytest.mark.parametrize("driver", SYNC)
async def test_chains_start_in_a_transaction_of_a_driver_that_blocks(client, database_url, driver):
    """In a thread, as frameworks that block run it."""
    open_transaction = SYNC[driver]
    await asyncio.to_thread(
        start_blocking, client, open_transaction(database_url), 1, is_undone=False
    )
    with pytest.raises(Undone):
        await asyncio.to_thread(
            start_blocking, client, open_transaction(database_url), 2, is_undone=True
        )

    assert await states(client) == [("charge", "open")]


async def test_a_step_moves_messages_from_queue_to_queue_in_one_transaction(
    client, start_worker, sql
):
    from skep import enqueue

    types = JobTypes("movers")

    @types.job("move")
    async def move(ctx: Ctx[None, int]) -> int:
        async with ctx.complete() as connection:
            messages = await consume(connection, "hive", group="movers")
            for message in messages:
                await enqueue.stage(connection, "meadow", message.payload)
            if ctx.attempt == 1:
                raise Undone
        return len(messages)

    log = Log(sql)
    (partition_id,) = await log.provision("hive", "a")
    await log.push_bodies(
        {partition_id: ["x"]}, {partition_id: b"[%b]" % build_envelope("x", b"7")}
    )
    await start_worker(types)

    assert await (await client.start(move, None)).result(timeout=20) == 1

    staged = await sql.fetch("select queue, payload from skep.staged")
    assert [(row["queue"], row["payload"]) for row in staged] == [("meadow", "7")]

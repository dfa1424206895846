import asyncio

from tests.sql.jobs.chains.test_chain_start import until_it_waits

KEEP = "select skep.job_hold($1, $1, $2, $3)"


async def test_a_job_that_is_still_the_workers_is_held(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    assert await chains.value(KEEP, chain_id, worker, 1) is True


async def test_case_26_another_token_holds_nothing(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    assert await chains.value(KEEP, chain_id, worker, 2) is False
    assert await chains.value(KEEP, chain_id, await chains.enroll(), 1) is False
    await chains.settle(worker, chain_id)
    assert await chains.value(KEEP, chain_id, worker, 1) is False


async def test_case_29_who_completes_from_outside_waits_for_the_worker_and_finds_it_done(
    chains, open_chains, worker
):
    other, observer = await open_chains(), await open_chains()
    chain_id = await chains.start()
    await chains.claim(worker)
    async with chains.connection.transaction():
        assert await chains.value(KEEP, chain_id, worker, 1)
        outside = asyncio.create_task(other.settle(None, chain_id, attempt=1))
        await until_it_waits(observer, other)
        assert await chains.settle(worker, chain_id) == "settled"

    assert await outside == "lost"


async def test_case_29_a_worker_that_comes_after_a_completion_from_outside_is_told(
    chains, open_chains, worker
):
    other, observer = await open_chains(), await open_chains()
    chain_id = await chains.start()
    await chains.claim(worker)
    async with other.connection.transaction():
        assert await other.settle(None, chain_id, attempt=1) == "settled"
        late = asyncio.create_task(chains.value(KEEP, chain_id, worker, 1))
        await until_it_waits(observer, chains)

    assert await late is False

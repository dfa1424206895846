import asyncio

from skep.jobs.identifiers import new_id
from tests.sql.jobs.chains.test_chain_start import until_it_waits

HOLD = "select * from skep.chain_hold($1)"


async def test_a_chain_that_does_not_exist_gives_no_row(chains):
    assert await chains.rows(HOLD, new_id()) == []


async def test_case_29_a_job_can_be_completed_from_outside_in_any_open_state(chains, worker):
    blocker = await chains.start("a")
    blocked = await chains.start(blockers=[blocker])
    scheduled = await chains.start(delay_s=60)
    running = await chains.start("b")
    await chains.claim(worker, "b")

    for chain_id in (blocked, scheduled, running):
        (held,) = await chains.rows(HOLD, chain_id)
        assert held["state"] == "open"
        assert held["is_running"] == (chain_id == running)
        answer = await chains.settle(None, held["job_id"], attempt=held["attempt"])
        assert answer == "settled"
        assert await chains.chain_state(chain_id) == "completed"
    assert await chains.settle(worker, running) == "lost"


async def test_defect_v08_who_waited_behind_a_continuation_sees_the_job_that_is_open_now(
    chains, open_chains, worker
):
    other, observer = await open_chains(), await open_chains()
    chain_id = await chains.start()
    await chains.claim(worker)
    async with chains.connection.transaction():
        next_id = await chains.go_on(worker, chain_id, "second")
        late = asyncio.create_task(other.rows(HOLD, chain_id))
        await until_it_waits(observer, other)

    (held,) = await late
    assert (held["job_id"], held["job_type"]) == (next_id, "second")
    assert await other.settle(None, next_id, attempt=held["attempt"]) == "settled"

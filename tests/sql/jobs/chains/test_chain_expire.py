async def expire(chains):
    return {
        row["chain_id"]: row["job_id"]
        for row in await chains.rows("select * from skep.chain_expire(10)")
    }


async def test_chains_fail_when_their_deadline_has_passed_wherever_they_are(chains, worker):
    blocker = await chains.start("a")
    running = await chains.start(deadline_s=10)
    await chains.claim(worker)
    blocked = await chains.start(deadline_s=10, blockers=[blocker])
    later = await chains.start(deadline_s=100)
    await chains.advance(10)

    assert await expire(chains) == {running: running, blocked: None}

    assert await chains.chain_state(running) == "failed"
    assert await chains.settle(worker, running) == "lost"
    assert await chains.chain_state(later) == "open"
    assert await expire(chains) == {}


async def test_a_chain_that_completed_in_time_is_left_alone(chains, worker):
    chain_id = await chains.start(deadline_s=10)
    await chains.run(worker)
    await chains.advance(20)

    assert await expire(chains) == {}
    assert await chains.chain_state(chain_id) == "completed"


async def test_a_retried_chain_has_no_deadline_any_more(chains, worker):
    chain_id = await chains.start(deadline_s=10)
    await chains.advance(10)
    await expire(chains)
    await chains.rows("select skep.chain_retry($1)", [chain_id])

    assert await expire(chains) == {}
    assert await chains.run(worker) == [chain_id]

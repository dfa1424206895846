from skep.jobs.identifiers import new_id

HASTEN = "select job_id, type from skep.job_hasten($1)"


async def hasten(chains, *ids):
    return {row["job_id"]: row["type"] for row in await chains.rows(HASTEN, list(ids))}


async def test_a_job_that_waits_for_its_time_runs_now(chains, worker):
    job_id = await chains.start(delay_s=3600)

    assert await hasten(chains, job_id) == {job_id: "work"}
    assert await chains.run(worker) == [job_id]


async def test_a_job_that_does_not_wait_for_its_time_is_passed_over(chains, worker):
    running = await chains.start("other")
    await chains.claim(worker, "other")
    ready, scheduled = await chains.start(), await chains.start(delay_s=60)
    blocked = await chains.start(blockers=[ready], delay_s=60)

    found = await hasten(chains, running, ready, scheduled, blocked, new_id())

    assert list(found) == [scheduled]
    assert await chains.state(blocked) == "blocked"
    assert await chains.stranded() == []


async def test_a_job_that_somebody_holds_is_passed_over_without_waiting(chains, open_chains):
    held, free = await chains.start(delay_s=60), await chains.start(delay_s=60)
    other = await open_chains()
    async with other.connection.transaction():
        await other.rows("select * from skep.chain_hold($1)", held)

        assert list(await hasten(chains, held, free)) == [free]

    assert await chains.state(held) == "scheduled"

from skep.jobs.identifiers import new_id


async def trigger(chains, *ids):
    rows = await chains.rows("select * from skep.job_trigger($1)", list(ids))
    return [row["outcome"] for row in rows]


async def test_case_08_a_triggered_job_runs_at_once(chains, worker):
    job_id = await chains.start(delay_s=3600)

    assert await trigger(chains, job_id) == ["triggered"]

    assert [job["job_id"] for job in await chains.claim(worker)] == [job_id]


async def test_one_that_cannot_be_triggered_keeps_the_others_from_it(chains, worker):
    scheduled = await chains.start(delay_s=3600)
    running = await chains.start("a")
    await chains.claim(worker, "a")
    blocked = await chains.start(blockers=[running])

    assert await trigger(chains, scheduled, running, blocked, new_id()) == [
        "triggered",
        "running",
        "blocked",
        "missing",
    ]

    assert await chains.state(scheduled) == "scheduled"


async def test_a_ready_job_keeps_its_place(chains, worker):
    first = await chains.start()
    await chains.advance(5)
    second = await chains.start()

    assert await trigger(chains, first) == ["triggered"]

    assert [job["job_id"] for job in await chains.claim(worker)] == [first, second]

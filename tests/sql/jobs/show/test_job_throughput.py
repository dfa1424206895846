"""How many jobs of each type ended lately."""

QUERY = "select * from skep.job_throughput($1, $2)"


async def finish(chains, name, *, outcome="completed", seconds=2.0):
    """Start a chain of one job, and let it run for so long."""
    worker = await chains.enroll()
    await chains.start(name)
    [job] = await chains.claim(worker, name)
    await chains.advance(seconds)
    await chains.settle_all(
        worker, {"job_id": job["job_id"], "attempt": job["attempt"], "outcome": outcome}
    )


async def test_ended_jobs_are_counted_by_type_with_how_long_they_ran(chains):
    await finish(chains, "mail", seconds=1)
    await finish(chains, "mail", seconds=3)
    await finish(chains, "bill", outcome="failed")
    await chains.start("mail")

    rows = {row["type"]: row for row in await chains.rows(QUERY, 600.0, 100)}

    assert (rows["mail"]["ended"], rows["mail"]["failed"], rows["mail"]["run_s"]) == (2, 0, 2.0)
    assert (rows["bill"]["ended"], rows["bill"]["failed"]) == (1, 1)
    assert rows["mail"]["span_s"] == 600.0


async def test_what_ended_before_the_span_does_not_count(chains):
    await finish(chains, "mail")
    await chains.advance(100)

    assert await chains.rows(QUERY, 50.0, 100) == []


async def test_of_very_many_the_newest_are_looked_at_and_the_span_says_so(chains):
    for _ in range(3):
        await finish(chains, "mail", seconds=2)
    await chains.advance(1)

    [row] = await chains.rows(QUERY, 600.0, 2)

    assert (row["ended"], row["span_s"]) == (2, 3.0)

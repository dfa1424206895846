REPORT = "select skep.job_report($1, $2, $3, $4, $5)"
PROGRESS = "select job_id, share, note from skep.job_progress order by job_id"


async def report(chains, worker, job_id, share, note=None, attempt=1):
    await chains.value(REPORT, worker, [job_id], [attempt], [share], [note])


async def test_the_newest_word_is_kept(chains):
    worker, job_id = await chains.enroll(), await chains.start()
    await chains.claim(worker)

    await report(chains, worker, job_id, 0.25, "a quarter")
    await report(chains, worker, job_id, 0.5)

    assert [tuple(row) for row in await chains.rows(PROGRESS)] == [(job_id, 0.5, None)]


async def test_who_does_not_have_the_job_is_not_heard(chains):
    worker, other = await chains.enroll(), await chains.enroll()
    job_id = await chains.start()
    await chains.claim(worker)

    await report(chains, other, job_id, 0.5)
    await report(chains, worker, job_id, 0.5, attempt=2)

    assert await chains.rows(PROGRESS) == []


async def test_what_is_said_of_a_job_goes_with_its_chain(chains):
    worker, job_id = await chains.enroll(), await chains.start()
    await chains.claim(worker)
    await report(chains, worker, job_id, 0.5)

    await chains.rows("select * from skep.chain_delete($1, false)", [job_id])

    assert await chains.rows(PROGRESS) == []


async def test_it_is_shown_with_the_job(chains):
    worker, job_id = await chains.enroll(), await chains.start()
    await chains.claim(worker)
    await report(chains, worker, job_id, 0.5, "half")

    (row,) = await chains.rows(
        "select * from skep.job_list(null, null, null, null, null, null, null, true, null, 10)"
    )

    assert (row["progress"], row["progress_note"]) == (0.5, "half")

from uuid import uuid4

from tests.sql.dead_letters.test_redrive_letters import start

QUERY = "select id from skep.list_redrives($1, $2, $3)"


async def test_the_newest_job_comes_first_and_pages_follow_each_other(log):
    await log.execute("delete from skep.redrive")
    jobs = []
    for _ in range(3):
        jobs.append(await start(log, uuid4()))
        await log.advance()

    async def page(job, limit, offset):
        return [row[0] for row in await log.rows(QUERY, job, limit, offset)]

    assert await page(None, 2, 0) == [jobs[2], jobs[1]]
    assert await page(None, 2, 2) == [jobs[0]]
    assert await page(jobs[1], 1, 0) == [jobs[1]]
    assert await page(uuid4(), 1, 0) == []

"""Workers are killed while they run chains: the short form of `tests.faults.job_kills`."""

import os

import pytest

from tests.faults.job_kills import COMPLAINTS, TABLES, run_campaign

SECONDS = float(os.environ.get("SKEP_TEST_JOB_KILLS_S", "8"))
CHAINS = int(os.environ.get("SKEP_TEST_JOB_KILLS_CHAINS", "200"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 3 * SECONDS)
async def test_every_chain_ends_exactly_once_although_workers_are_killed(database_url, tmp_path):
    with (tmp_path / "workers.log").open("w+b") as log:
        outcome = await run_campaign(
            database_url, chains=CHAINS, seconds=SECONDS, workers=3, patience_s=90, log=log
        )
        log.seek(0)
        said = log.read().decode()[-2000:]

    assert outcome.complaints == {}, said
    assert outcome.kills > 0
    assert outcome.lost_attempts > 0, "no worker was killed while it ran a job"


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (
            """insert into skep.open_job
                 (job_id, chain_id, type_id, priority, due_at, max_attempts, open_blockers)
               values (gen_random_uuid(), gen_random_uuid(), 1, 0, now(), 1, 1)""",
            "stranded jobs",
        ),
        ("insert into ordered values (gen_random_uuid())", "orders without a chain"),
        ("insert into done values (gen_random_uuid(), 'part')", "rows of chains that do not exist"),
    ],
)
async def test_the_checks_notice_harm(connect, harm, complaint):
    sql = await connect()
    await sql.execute(TABLES)

    await sql.execute(harm)

    found = {name for name, query in COMPLAINTS.items() if await sql.fetchval(query)}
    assert complaint in found

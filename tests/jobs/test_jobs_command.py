"""`skep jobs` as a person sees it."""

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from skep.jobs import ChainFilter, Schedule, Scheduler
from tests.jobs.support.shop import charge, price

ROOT = Path(__file__).parents[2]


@pytest.fixture
def jobs(database_url):
    """Run a command; return its exit code and what it said."""

    async def jobs(*arguments, stdin=b"", code=0):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "skep", "jobs", *map(str, arguments)),
            cwd=ROOT,
            env={**os.environ, "SKEP_DATABASE_URL": database_url, "COLUMNS": "300"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complained = await process.communicate(stdin)
        assert process.returncode == code, complained.decode()
        return (said if code == 0 else complained).decode()

    return jobs


async def test_a_chain_is_started_and_its_result_printed(jobs, start_worker):
    await start_worker()

    assert await jobs("start", "price", "7", "--wait", "20") == "7\n"
    assert await jobs("start", "price", "-", "--wait", "20", stdin=b"8") == "8\n"


async def test_a_key_starts_one_chain(jobs, client):
    first = await jobs("start", "price", "7", "--key", "k")
    second = await jobs("start", "price", "7", "--key", "k")

    assert second == f"{first.strip()} (already started)\n"
    assert len((await client.inspection.chains(ChainFilter())).items) == 1


async def test_chains_and_jobs_are_listed(jobs, client):
    chain = await client.start(price, 7)
    await client.start(price, 8, after=timedelta(hours=1))

    table = await jobs("chains", "--state", "open")
    assert str(chain.id) in table
    assert table.count("price") == 2 * 2  # the chain and its last job

    (shown,) = json.loads(await jobs("list", "--state", "ready", "-o", "json"))
    assert (shown["id"], shown["input"]) == (str(chain.id), 7)
    lines = (await jobs("list", "--type", "price", "-o", "ndjson")).splitlines()
    assert {json.loads(line)["state"] for line in lines} == {"ready", "scheduled"}
    (counts,) = json.loads(await jobs("types", "-o", "json"))
    assert (counts["ready"], counts["scheduled"]) == (1, 1)
    for command in ("chains", "list"):
        assert len(json.loads(await jobs(command, "--since", "1h", "-o", "json"))) == 2
        assert json.loads(await jobs(command, "--until", "1h", "-o", "json")) == []
        assert "last error" in await jobs(command)
    assert await jobs("attempts", chain.id)
    assert "enrolled" in await jobs("workers")
    assert "cron" in await jobs("schedules")


async def test_chains_are_cancelled_retried_and_deleted(jobs, client):
    chain = await client.start(price, 7)

    assert await jobs("cancel", chain.id, "--yes") == f"{chain.id} cancelled\n"
    await jobs("retry", chain.id)
    (row,) = (await client.inspection.chains(ChainFilter())).items
    assert row.state == "open"
    assert await jobs("delete", chain.id, "--yes") == "Deleted 1 chains\n"
    assert (await client.inspection.chains(ChainFilter())).items == []


async def test_what_destroys_asks_first(jobs, client):
    chain = await client.start(price, 7)

    for command in (("cancel", chain.id), ("delete", chain.id), ("prune", "--days", "0")):
        await jobs(*command, stdin=b"n\n", code=1)

    (row,) = (await client.inspection.chains(ChainFilter())).items
    assert row.state == "open"


async def test_all_that_match_are_counted_first_and_then_changed(jobs, client):
    ids = [(await client.start(price, n)).id for n in range(3)]
    other = (await client.start(charge, {"number": 1}, after=timedelta(hours=1))).id

    assert await jobs("cancel", "--all", "--type", "price", "--dry-run") == "3 match\n"
    assert await jobs("cancel", "--all", "--type", "price", "--yes") == "3 done\n"
    assert await jobs("retry", "--all", "--state", "cancelled", "--yes") == "3 done\n"
    assert await jobs("trigger", "--all", "--until", "1h", "--yes") == "0 match\n"
    assert await jobs("trigger", "--all", "--since", "1h", "--yes") == "1 done\n"
    assert await jobs("delete", "--all", "--state", "open", "--since", "1h", "--yes") == "4 done\n"
    assert {*ids, other}.isdisjoint(
        [chain.id for chain in (await client.inspection.chains(ChainFilter())).items]
    )


async def test_what_was_refused_is_said_with_its_reason(jobs, client):
    needed = await client.start(price, 7)
    await client.start(charge, {"number": 1}, blockers=[needed.ref])

    said = await jobs("delete", "--all", "--type", "price", "--yes")

    assert "0 done" in said
    assert f"1 refused: a job of another chain needs it, such as {needed.id}" in said


async def test_all_that_match_are_not_touched_unless_somebody_agrees(jobs, client):
    await client.start(price, 7)

    assert "Cancel 1 chains?" in await jobs("cancel", "--all", stdin=b"n\n", code=1)

    (row,) = (await client.inspection.chains(ChainFilter())).items
    assert row.state == "open"


async def test_blockers_are_listed_with_what_becomes_of_the_job(jobs, client):
    part = await client.start(price, 7)
    chain = await client.start(price, 8, blockers=[part.ref])
    await client.cancel(part.id)

    (shown,) = json.loads(await jobs("blockers", chain.id, "-o", "json"))
    assert (shown["chain"], shown["state"], shown["onFailure"]) == (
        str(part.id),
        "cancelled",
        "wait",
    )
    assert "failed blockers" in await jobs("list", "--state", "blocked")


async def test_types_are_paused_and_jobs_triggered(jobs, client, sql):
    chain = await client.start(charge, {"number": 1}, after=timedelta(hours=1))
    paused = "select is_paused from skep.job_type where name = 'charge'"

    await jobs("pause", "charge")
    assert await sql.fetchval(paused)
    await jobs("resume", "charge")
    assert not await sql.fetchval(paused)
    await jobs("trigger", chain.id)

    assert await sql.fetchval("select due_at <= skep.now() from skep.open_job")


async def test_schedules_are_paused_and_resumed(jobs, client):
    scheduler = Scheduler(client.slots)
    await scheduler.put(Schedule("daily", price, 1, cron="0 0 * * *"))

    assert await jobs("pause-schedule", "daily") == "Paused schedule daily\n"
    (row,) = json.loads(await jobs("schedules", "-o", "json"))
    assert (row["isEnabled"], row["isPaused"]) == (False, True)
    await jobs("resume-schedule", "daily")

    assert (await scheduler.find("daily")).is_enabled


async def test_old_chains_are_pruned_and_tables_vacuumed(jobs, client):
    chain = await client.start(price, 7)
    await client.cancel(chain.id)

    assert await jobs("prune", "--days", "0", "--yes") == "Deleted 1 chains\n"
    assert "open_job" in await jobs("vacuum")


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (("start", "price", "{"), "not JSON"),
        (("retry", uuid4()), "there is no chain"),
        (("retry",), "pass at least one id"),
        (("cancel", uuid4(), "--all"), "not both"),
        (("delete", uuid4(), "--type", "price"), "require --all"),
        (("delete", "--all", "--cascade"), "--cascade requires ids"),
        (("trigger", uuid4()), "there is no job"),
        (("pause", "nobody"), "there never was a job"),
        (("pause-schedule", "missing"), "there is no schedule"),
    ],
)
async def test_what_cannot_be_done_is_said_in_one_line(jobs, arguments, saying):
    said = await jobs(*arguments, code=1)

    assert saying in said
    assert said.count("\n") == 1

"""`skep jobs`, `skep replays` and `skep pipeline` against a broker."""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.sql.support.waiting import eventually

CHAINS = "/api/v1/chains"


@pytest.fixture
def job(queue):
    """The name of jobs that no other test starts."""
    return f"{queue}-job"


@pytest.fixture
def start(api, job):
    """Start a chain; return its id."""

    def start(**members):
        body = {"chains": [{"type": job, "input": 7, **members}]}
        return api.request("POST", CHAINS, body)["chains"][0]["id"]

    return start


def states(api, job):
    return [each["state"] for each in api.request("GET", f"{CHAINS}?type={job}")["items"]]


def test_a_chain_is_started_once_per_key(skep, api, job):
    first = skep("jobs", "start", job, "-", "--key", "k", stdin="[7]").out
    second = skep("jobs", "start", job, "7", "--key", "k").out

    assert second == f"{first.strip()} (already started)\n"
    (chain,) = api.request("GET", f"{CHAINS}?type={job}")["items"]
    assert (chain["id"], chain["input"]) == (first.strip(), [7])


async def test_a_result_is_waited_for(skep, api, job):
    async def find():
        return (await asyncio.to_thread(api.request, "GET", f"{CHAINS}?type={job}"))["items"]

    waiting = asyncio.create_task(asyncio.to_thread(skep, "jobs", "start", job, "--wait", "20"))
    (chain,) = await eventually(find)
    api.request("POST", f"{CHAINS}/{chain['id']}/complete", {"output": {"total": 12}})

    assert json.loads((await waiting).out) == {"total": 12}


def test_a_chain_that_does_not_end_in_time_is_said(skep, job):
    assert "did not end within 0 s" in skep("jobs", "start", job, "--wait", "0", code=1).err


def test_chains_and_jobs_are_listed(skep, start, job):
    chain = start()
    start(delaySeconds=3600)

    table = skep("jobs", "chains", "--type", job, "--state", "open").out
    rows = skep("jobs", "list", "--type", job, "-o", "ndjson").ndjson()
    cut = skep("jobs", "list", "--type", job, "--limit", 1)
    after = cut.err.split("--after ")[1].split(",")[0]
    rest = skep("jobs", "list", "--type", job, "--after", after, "-o", "json").json()

    assert [line.split()[0] for line in table.splitlines()][::2] == ["ID", chain]
    assert {row["state"] for row in rows} == {"ready", "scheduled"}
    assert rest == rows[1:]
    assert skep("jobs", "list", "--type", job, "--until", "1h", "-o", "json").json() == []
    assert len(skep("jobs", "list", "--type", job, "--since", "1h", "-o", "json").json()) == 2
    (counts,) = [row for row in skep("jobs", "types", "-o", "json").json() if row["type"] == job]
    assert (counts["ready"], counts["scheduled"]) == (1, 1)
    assert skep("jobs", "workers").err == "No worker runs\n"


def test_a_failed_chain_is_shown_with_the_line_that_says_why(skep, api, start, job):
    chain = start()
    error = "Traceback (most recent call last):\n  File\nValueError: no price"
    api.request("POST", f"{CHAINS}/{chain}/fail", {"error": error})

    shown = skep("jobs", "show", chain).out

    assert "State           failed" in shown
    assert "ValueError: no price" in shown
    assert skep("jobs", "attempts", chain).err == "The job has not run\n"


def test_chains_are_cancelled_retried_and_deleted(skep, api, start, job):
    chain = start()

    assert skep("jobs", "cancel", chain, "--yes").out == f"{chain} cancelled\n"
    assert skep("jobs", "retry", chain).out == "Resumed 1 chain\n"
    assert states(api, job) == ["open"]
    assert skep("jobs", "delete", chain, "--yes").out == "Deleted 1 chain\n"
    assert states(api, job) == []


def test_what_destroys_asks_first(skep, api, start, job):
    chain = start()

    for command in (("cancel", chain), ("delete", chain), ("cancel", "--all", "--type", job)):
        assert "Cancel 1" in skep("jobs", *command, code=1).err.replace("Delete", "Cancel")

    assert states(api, job) == ["open"]


def test_all_that_match_are_counted_first_and_then_changed(skep, api, start, job):
    for delay_s in (0, 0, 3600):
        start(delaySeconds=delay_s)
    all_of = ("--all", "--type", job)

    assert skep("jobs", "cancel", *all_of, "--dry-run").out == "3 chains match\n"
    assert skep("jobs", "trigger", *all_of, "--until", "1h", "--yes").out == "0 jobs match\n"
    assert skep("jobs", "trigger", *all_of, "--since", "1h", "--yes").out == "1 done\n"
    assert skep("jobs", "cancel", *all_of, "--yes").out == "3 done\n"
    assert skep("jobs", "retry", *all_of, "--state", "cancelled", "--yes").out == "3 done\n"
    assert skep("jobs", "delete", *all_of, "--state", "open", "--yes").out == "3 done\n"
    assert states(api, job) == []


def test_what_was_refused_is_said_with_its_reason(skep, start, job):
    needed = start()
    start(type=f"{job}-that-waits", blockers=[needed])

    said = skep("jobs", "delete", "--all", "--type", job, "--yes").out

    assert "0 done" in said
    assert f"1 refused: a job of another chain needs it, such as {needed}" in said


def test_blockers_are_listed_with_what_becomes_of_the_job(skep, start):
    part = start()
    chain = start(blockers=[part])
    skep("jobs", "cancel", part, "--yes")

    (shown,) = skep("jobs", "blockers", chain, "-o", "json").json()

    assert (shown["chain"], shown["state"], shown["onFailure"]) == (part, "cancelled", "wait")


def test_types_are_paused_and_resumed(skep, api, start, job):
    start()

    assert skep("jobs", "pause", job).out == f"Paused job {job}\n"
    types = {each["name"]: each for each in api.request("GET", "/api/v1/jobs/types")["items"]}
    skep("jobs", "resume", job)

    assert types[job]["isPaused"]


def test_schedules_are_paused_and_resumed(skep, api, job):
    api.request("PUT", f"/api/v1/schedules/{job}", {"type": job, "cron": "0 0 * * *"})

    assert skep("jobs", "pause-schedule", job).out == f"Paused schedule {job}\n"
    rows = {row["name"]: row for row in skep("jobs", "schedules", "-o", "json").json()}
    assert (rows[job]["isEnabled"], rows[job]["isPaused"]) == (False, True)
    skep("jobs", "resume-schedule", job)

    assert api.request("GET", f"/api/v1/schedules/{job}")["isEnabled"]


def test_old_chains_are_pruned_and_tables_vacuumed_in_the_database(skep, api, broker, start, job):
    skep("jobs", "cancel", start(), "--yes")
    there = ("--database-url", broker.database_url)

    skep("jobs", "prune", "--days", "0", "--yes", *there)

    assert states(api, job) == []
    assert "open_job" in skep("jobs", "vacuum", *there).out


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
def test_what_cannot_be_done_is_said_in_one_line(skep, arguments, saying):
    said = skep("jobs", *arguments, code=1).err

    assert saying in said
    assert said.count("\n") == 1


def test_a_replay_is_ordered_once_shown_and_cancelled(skep, api, queue):
    api.push(queue, 1)
    span = ("--from", "2026-01-01", "--to", datetime.now(UTC) - timedelta(days=1))
    order = ("replays", "start", "--queue", queue, *span, "--into", f"{queue}-again")

    first = skep(*order)
    again = skep(*order)

    replay = first.out.strip()
    assert "skep worker" in first.err
    assert again.out == f"{replay} (already ordered)\n"
    assert replay in skep("replays", "list").out
    assert f"Into      {queue}-again" in skep("replays", "show", replay).out
    assert skep("replays", "cancel", replay, "--yes").out == f"Cancelled replay {replay}\n"
    assert skep("replays", "show", replay, "-o", "json").json()["state"] == "cancelled"


BEGIN = "select run_id from skep.begin_pipeline($1, '{}', 'h', '/c', 'host:1', 'local', false)"
REPORT = "select * from skep.report_pipeline($1, $2, '{}', 2, 20, 1.5, 5, 6, null, '[]', $3)"
EXPECTED = '[{"sink":"queue","name":"odd","otherwise":"drop","rows":9,"failed":2}]'
SILENT = "update skep.pipeline set seen_at = now() - interval '1 hour' where name = $1"


async def test_a_pipeline_is_listed_shown_and_stopped(skep, broker, queue):
    def run(*arguments, **options):
        return asyncio.to_thread(skep, "pipeline", *arguments, **options)

    async with broker.sql() as sql:
        run_id = await sql.fetchval(BEGIN, queue)
        await sql.fetch(REPORT, run_id, "running", EXPECTED)
        assert "running" in (await run("list")).out
        shown = (await run("status", queue)).out
        asked = await run("stop", queue, "--wait", "0")
        unheard = await run("stop", queue, "--wait", "0.1", code=1)
        await sql.fetch(REPORT, run_id, "stopped", None)
        ended = await run("stop", queue)
        await sql.fetch(REPORT, run_id, "running", None)
        await sql.execute(SILENT, queue)
        gone = await run("stop", queue, code=1)

    assert "Lag messages" in shown
    assert "odd (queue, drop): 2 of 9 rows failed" in shown
    assert asked.out == f"Asked pipeline {queue} to stop\n"
    assert "did not stop within 0.1 s" in unheard.err
    assert "is not running: it is stopped" in ended.out
    assert "its process is gone" in gone.err
    assert "missing" in (await run("list")).out


def test_pipelines_need_no_spark(skep, monkeypatch):
    for module in ("pyspark", "adbc_driver_manager", "pyarrow"):
        monkeypatch.setitem(sys.modules, module, None)

    skep("pipeline", "list")
    assert "no pipeline" in skep("pipeline", "status", "missing", code=1).err

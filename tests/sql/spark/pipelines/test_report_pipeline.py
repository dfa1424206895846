from uuid import uuid4

import pytest

BEGIN = "select run_id from skep.begin_pipeline('p', '{}', 'h', '/c', 'host:1', 'local', false)"
REPORT = "select should_stop from skep.report_pipeline($1, $2, $3, 2, 20, 1.5, $4, $5, $6)"
ROW = (
    "select state, position::text, batches, messages, rate, lag_messages, lag_s, last_error, "
    "seen_at - started_at, ended_at - started_at from skep.pipeline"
)


@pytest.fixture
def run_id(arun, log):
    arun(log.execute("delete from skep.pipeline"))
    return arun(log.connection.fetchval(BEGIN))


async def row(log):
    *values, seen, ended = await log.connection.fetchrow(ROW)
    return (*values, seen.total_seconds(), ended and ended.total_seconds())


async def test_a_report_replaces_the_one_before_but_keeps_what_it_does_not_say(log, run_id):
    await log.advance(3)
    answer = await log.connection.fetch(REPORT, run_id, "running", "[1]", 5, 6, None)
    assert [tuple(each) for each in answer] == [(False,)]
    assert await row(log) == ("running", "[1]", 2, 20, 1.5, 5, 6, None, 3.0, None)

    await log.advance(1)
    await log.connection.fetch(REPORT, run_id, "failed", None, None, None, "broken")

    assert await row(log) == ("failed", "[1]", 2, 20, 1.5, 5, 6, "broken", 4.0, 4.0)


async def test_a_report_hears_that_somebody_wants_it_to_stop(log, run_id):
    await log.execute("update skep.pipeline set should_stop = true")

    assert await log.connection.fetchval(REPORT, run_id, "running", None, None, None, None)


async def test_a_run_that_was_replaced_gets_no_answer_and_changes_nothing(log, run_id):
    assert await log.connection.fetch(REPORT, uuid4(), "failed", None, None, None, "late") == []
    assert (await row(log))[0] == "starting"


async def test_batches_and_expectations_are_kept_until_others_are_told(log, run_id):
    told = REPORT.replace("$6)", "$6, $7, $8)")
    await log.connection.fetch(told, run_id, "running", None, None, None, None, "[1]", "[2]")
    await log.connection.fetch(told, run_id, "running", None, None, None, None, None, None)

    kept = "select recent::text, expectations::text from skep.pipeline"
    assert tuple(await log.connection.fetchrow(kept)) == ("[1]", "[2]")

"""What a worker says of jobs that fail: again at WARNING, for good at ERROR with the stack."""

import logging

import pytest

from skep.jobs.errors import ChainFailed
from skep.jobs.identifiers import new_id
from tests.jobs.support.heavy import wait
from tests.jobs.support.shop import break_down, give_up, new_stage, price


def said(caplog, level):
    return [record for record in caplog.records if record.levelno == level]


async def test_a_failure_that_is_tried_again_is_a_warning_and_the_last_an_error(
    client, start_worker, caplog
):
    new_stage()
    await start_worker()
    chain = await client.start(break_down, "no bees")
    with pytest.raises(ChainFailed):
        await chain.result(timeout=20)

    warnings = [record.getMessage() for record in said(caplog, logging.WARNING)]
    assert len(warnings) == 2
    for attempt, text in enumerate(warnings, start=1):
        assert f"Job {chain.id} (break) of chain {chain.id}" in text
        assert f"attempt {attempt}" in text
        assert "RuntimeError: no bees" in text
    (error,) = said(caplog, logging.ERROR)
    assert f"Job {chain.id} (break) of chain {chain.id} failed in attempt 3" in error.getMessage()
    assert str(error.exc_info[1]) == "no bees"
    assert error.exc_info[2] is not None


async def test_a_handler_that_gives_up_is_an_error(client, start_worker, caplog):
    await start_worker()
    with pytest.raises(ChainFailed):
        await (await client.start(give_up, "hopeless")).result(timeout=20)

    (error,) = said(caplog, logging.ERROR)
    assert "(give up)" in error.getMessage()


async def test_a_job_whose_worker_was_lost_too_often_is_an_error(client, start_worker, sql, caplog):
    chain = await client.start(price, 1)
    await sql.execute("update skep.open_job set failures = max_attempts - 1")
    await sql.execute("select skep.job_worker_enroll($1, 'gone', 0)", gone := new_id())
    ((_, type_id),) = await sql.fetch("select * from skep.job_type_ensure('{price}')")
    await sql.fetch("select * from skep.job_claim($1, $2, 1)", gone, [type_id])

    await start_worker()
    with pytest.raises(ChainFailed):
        await chain.result(timeout=20)

    (error,) = said(caplog, logging.ERROR)
    assert f"Job {chain.id} (price) of chain {chain.id} failed in attempt 1" in error.getMessage()
    assert str(gone) in error.getMessage()


async def test_a_chain_whose_deadline_passed_is_an_error(client, start_worker, sql, caplog):
    chain = await client.start(wait, None)
    await sql.execute("update skep.chain set deadline_at = skep.now() - interval '1 s'")

    await start_worker()
    with pytest.raises(ChainFailed):
        await chain.result(timeout=20)

    (error,) = said(caplog, logging.ERROR)
    assert f"Chain {chain.id} (wait) failed" in error.getMessage()

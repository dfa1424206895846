from uuid import uuid4

import pytest

from tests.sql.support.operating import carry_out, check_books, claim, defer, operation, stored

CALL = "select * from skep.retry_operation($1)"


async def given_up(log, partition, *names):
    only = await defer(log, partition, *names)
    claim_id, _ = await claim(log, per_partition=1)
    await log.value("select skep.postpone_operation($1, $2, 'no luck', -1, 1, 1)", only, claim_id)
    return only


async def test_an_operation_that_was_given_up_waits_once_more_behind_the_others(log):
    [a] = await log.provision("hive", "a")
    failed = await given_up(log, a, "late")
    await defer(log, a, "early")

    row = await log.row(CALL, failed)

    assert tuple(row) == ("waiting", 2)
    found = await operation(log, failed)
    assert [found["status"], found["retries"], found["finished_at"]] == ["waiting", 0, None]
    await check_books(log)
    await carry_out(log)
    assert await stored(log, a) == ["early", "late"]


async def test_alone_in_its_partition_it_is_next(log):
    [a] = await log.provision("hive", "a")
    failed = await given_up(log, a, "x")

    assert tuple(await log.row(CALL, failed)) == ("waiting", 1)
    await check_books(log)
    assert await carry_out(log) == [failed]


async def test_what_has_not_failed_is_not_retried(log):
    [a] = await log.provision("hive", "a")
    waiting = await defer(log, a)

    assert tuple(await log.row(CALL, waiting)) == ("unfit", None)
    await check_books(log)


async def test_there_is_no_partition_to_wait_in_any_more(log):
    [a] = await log.provision("hive", "a")
    failed = await given_up(log, a)
    await log.value("select skep.remove_queue($1)", "hive")

    assert tuple(await log.row(CALL, failed)) == ("gone", None)
    assert (await operation(log, failed))["status"] == "failed"


@pytest.mark.parametrize("function", ["retry_operation", "cancel_operation"])
async def test_an_unknown_operation_is_unknown(log, function):
    row = await log.row(f"select * from skep.{function}($1)", uuid4())

    assert row[0] == "unknown"

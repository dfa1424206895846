import pytest

ORIGIN = "select skep.log_origin()"


@pytest.fixture(autouse=True)
def made_here(arun, log):
    here = "update skep.identity set server = skep.server_identity(), xid = pg_current_xact_id()"
    arun(log.execute(here))
    yield
    arun(log.execute(here))


async def test_a_log_that_was_made_here_is_told(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    assert await log.value(ORIGIN) == "here"


async def test_files_of_another_server_still_show_who_wrote_their_rows(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.execute("update skep.identity set server = '1:1', xid = pg_current_xact_id()")

    assert await log.value(ORIGIN) == "moved"
    # One of a dump is written anew.
    await log.execute("update skep.segment set xid = '3'")
    assert await log.value(ORIGIN) == "restored"


async def test_a_dump_writes_the_record_itself_anew(log):
    await log.execute("update skep.identity set server = '1:1'")

    assert await log.value(ORIGIN) == "restored"


async def test_transactions_to_come_are_those_of_another_server_whatever_the_record_says(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.execute("update skep.segment set xid = '999999999999'")

    assert await log.value(ORIGIN) == "restored"

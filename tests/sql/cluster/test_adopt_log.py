import pytest

ADOPT = "select skep.adopt_log()"
IDENTITY = "select skep.system_identity()"
MADE_HERE = (
    "update skep.identity set server = skep.server_identity(),"
    " name = skep.server_identity(), xid = pg_current_xact_id()"
)


@pytest.fixture(autouse=True)
def identity(arun, log):
    arun(log.execute(MADE_HERE))
    yield arun(log.value(IDENTITY))
    # The tests that come later share the database.
    arun(log.execute(MADE_HERE))


async def test_what_moved_keeps_its_name_and_its_readers(log, identity):
    await log.execute(
        "update skep.identity set server = '1:1', name = '1:1', xid = pg_current_xact_id()"
    )
    await log.execute("insert into skep.timeline values (7, '5')")
    await log.value("select skep.register_reader('spark', '{hive}', '{}')")
    assert await log.value(IDENTITY) == identity

    assert await log.value(ADOPT) == "moved"

    assert await log.value(IDENTITY) == "1:1"
    assert await log.value("select count(*) from skep.reader") == 1
    kept = "select xid::text::bigint from skep.timeline where number = 7"
    assert await log.value(kept) > 5
    assert await log.value(ADOPT) == "here"


async def test_what_was_restored_gets_the_name_of_this_server(log, identity):
    await log.execute("update skep.identity set server = '1:1', name = '1:1'")
    await log.value("select skep.register_reader('spark', '{hive}', '{}')")

    assert await log.value(ADOPT) == "restored"

    assert await log.value(IDENTITY) == identity
    assert await log.value("select count(*) from skep.reader") == 0
    assert await log.value(ADOPT) == "here"

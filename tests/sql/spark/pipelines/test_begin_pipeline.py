import asyncio

import pytest

from tests.sql.support.waiting import eventually

BEGIN = "select * from skep.begin_pipeline($1, '{\"a\": 1}', $2, '/c', 'host:1', 'local', $3)"
ROW = "select run_id, state, should_stop, position::text, messages, last_error from skep.pipeline"


@pytest.fixture(autouse=True)
def nothing(arun, log):
    arun(log.execute("delete from skep.pipeline"))


async def begin(log, digest="h", *, reset=False):
    return await log.connection.fetchrow(BEGIN, "p", digest, reset)


async def test_the_first_run_is_on_record(log):
    begun = await begin(log)

    assert tuple(begun)[1:] == (None, None, False)
    assert tuple(await log.connection.fetchrow(ROW)) == (
        begun["run_id"], "starting", False, None, 0, None,
    )  # fmt: skip


async def test_the_next_run_takes_its_place_and_keeps_its_position(log):
    first = await begin(log)
    await log.execute(
        "update skep.pipeline set position = '[1]', messages = 7, should_stop = true, "
        "state = 'failed', last_error = 'broken', ended_at = now()"
    )

    second = await begin(log)

    assert tuple(second)[1:] == ("h", "/c", True)
    assert second["run_id"] != first["run_id"]
    assert tuple(await log.connection.fetchrow(ROW)) == (
        second["run_id"], "starting", False, "[1]", 0, None,
    )  # fmt: skip


async def test_another_definition_is_not_begun_unless_it_is_reset(log):
    first = await begin(log)
    await log.execute("update skep.pipeline set position = '[1]'")

    refused = await begin(log, "other")
    assert (refused["run_id"], refused["known_hash"]) == (None, "h")
    assert (await log.connection.fetchrow(ROW))["run_id"] == first["run_id"]

    begun = await begin(log, "other", reset=True)
    assert begun["run_id"] is not None
    assert not begun["has_progress"]
    assert (await log.connection.fetchrow(ROW))["position"] is None


async def test_of_two_first_runs_with_different_definitions_one_begins(log, open_log):
    other = await open_log()
    async with log.connection.transaction():
        assert (await begin(log))["run_id"] is not None
        late = asyncio.ensure_future(begin(other, "other"))
        watcher = await open_log()
        await eventually(
            lambda: watcher.connection.fetchval(
                "select count(*) > 0 from pg_locks where not granted"
            )
        )

    assert (await late)["run_id"] is None

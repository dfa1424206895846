import pytest

BEGIN = "select run_id from skep.begin_pipeline('p', '{}', 'h', '/c', 'host:1', 'local', false)"
STOP = "select * from skep.stop_pipeline($1)"
WISH = "select should_stop from skep.pipeline"


@pytest.fixture(autouse=True)
def begun(arun, log):
    arun(log.execute("delete from skep.pipeline"))
    arun(log.connection.fetch(BEGIN))


async def test_whoever_runs_it_will_hear_the_wish(log):
    await log.advance(2)

    assert [tuple(row) for row in await log.connection.fetch(STOP, "p")] == [("starting", 2.0)]
    assert await log.connection.fetchval(WISH)


@pytest.mark.parametrize("state", ["stopped", "failed"])
async def test_a_run_that_has_ended_leaves_no_wish_for_the_next(log, state):
    await log.execute(f"update skep.pipeline set state = '{state}'")

    assert (await log.connection.fetchrow(STOP, "p"))["state"] == state
    assert not await log.connection.fetchval(WISH)


async def test_there_is_no_answer_for_a_pipeline_that_does_not_exist(log):
    assert await log.connection.fetch(STOP, "nothing") == []

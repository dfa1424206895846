from tests.sql.support.enqueued import stage, staged, staged_ids


async def claim(log, ids):
    return await log.value("select skep.claim_staged($1)", ids)


async def test_messages_that_are_there_can_be_claimed_and_stay(log):
    await stage(log, "x", "y")

    assert await claim(log, await staged_ids(log)) is True
    assert await staged(log) == ["x", "y"]


async def test_of_messages_some_of_which_are_gone_none_is_claimed(log):
    await stage(log, "x", "y")
    x, y = await staged_ids(log)
    await log.value("select skep.drop_staged($1)", [x])

    assert await claim(log, [x, y]) is False
    assert await claim(log, [y]) is True


async def test_one_session_at_a_time_has_a_claim(log, open_log):
    await stage(log, "x", "y")
    x, y = await staged_ids(log)
    other = await open_log()
    async with other.connection.transaction():
        assert await claim(other, [x]) is True
        assert await claim(other, [y]) is True  # its own claims do not stop it

        assert await claim(log, [y]) is False

    assert await claim(log, [y]) is True


async def test_a_claimed_message_cannot_be_deleted_by_an_operator(log, open_log):
    await stage(log, "x")
    operator = await open_log()
    async with log.connection.transaction():
        await claim(log, await staged_ids(log))

        skipped = await operator.rows("select id from skep.staged for update skip locked")

    assert skipped == []

from tests.sql.support.enqueued import stage, staged, staged_ids, transactions


async def drop(log, ids):
    await log.value("select skep.drop_staged($1)", ids)


async def test_a_transaction_goes_with_its_last_message(log):
    await stage(log, "x", "y")
    x, y = await staged_ids(log)

    await drop(log, [x])
    assert (await staged(log), await transactions(log)) == (["y"], 1)

    await drop(log, [y])
    assert (await staged(log), await transactions(log)) == ([], 0)


async def test_other_transactions_stay(log):
    await stage(log, "x")
    await stage(log, "y")

    await drop(log, (await staged_ids(log))[:1])

    assert (await staged(log), await transactions(log)) == (["y"], 1)


async def test_nothing_to_drop_is_nothing_to_do(log):
    await stage(log, "x")

    await drop(log, [])

    assert (await staged(log), await transactions(log)) == (["x"], 1)

"""Old records of transactions go; young ones stay."""

from tests.sql.support.settling import transact


async def test_only_old_records_are_forgotten(log):
    await log.execute("delete from skep.settled_transaction")
    [partition] = await log.provision("hive", "a")
    await transact(log, (), {partition: "x"})
    await log.advance(100)
    await transact(log, (), {partition: "y"})

    assert await log.value("select skep.forget_transactions(60)") == 1

    assert await log.value("select count(*) from skep.settled_transaction") == 1
    assert await log.value("select skep.forget_transactions(60)") == 0

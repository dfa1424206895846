"""Reading which maintenance modes are on."""

import pytest

READ = "select * from skep.read_maintenance()"


@pytest.fixture(autouse=True)
def no_modes(arun, log):
    arun(log.execute("delete from skep.maintenance_mode"))


async def test_nothing_is_on_that_was_never_set(log):
    assert tuple(await log.row(READ)) == (False, False)


async def test_each_mode_is_told(log):
    await log.rows("select skep.set_maintenance($1, $2)", "pop", True)
    assert tuple(await log.row(READ)) == (False, True)

    await log.rows("select skep.set_maintenance($1, $2)", "push", True)
    await log.rows("select skep.set_maintenance($1, $2)", "pop", False)
    assert tuple(await log.row(READ)) == (True, False)

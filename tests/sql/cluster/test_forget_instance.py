from uuid import uuid4

import pytest

REPORT = "select skep.report_instance($1, 'a', 6632, '1.0', 2)"


@pytest.fixture(autouse=True)
def nobody(arun, log):
    arun(log.execute("delete from skep.instance"))


async def test_an_instance_that_says_goodbye_is_gone_and_others_stay(log):
    leaving, staying = uuid4(), uuid4()
    await log.execute(REPORT, leaving)
    await log.execute(REPORT, staying)

    await log.execute("select skep.forget_instance($1)", leaving)

    rows = await log.connection.fetch("select id from skep.list_instances(10)")
    assert [row[0] for row in rows] == [staying]

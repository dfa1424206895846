"""What a page about groups reads does not grow with the number of partitions."""

import pytest

from skep.db.access.slots import ONE_OFF
from tests.sql.model.test_plans import MeteredLog
from tests.sql.support.log import Log
from tests.sql.support.partitions import many_partitions

FEW, MANY = 8_000, 24_000
EXACT_MAX = 1_000


def listings(log, group):
    return {
        "groups": lambda: log.rows("select * from skep.list_groups(null, null, 100, 0)"),
        "backlog": lambda: log.rows(
            "select * from skep.measure_backlog($1, $2)", [group], EXACT_MAX
        ),
        "partitions": lambda: log.rows(
            "select * from skep.describe_partitions($1, 100, 0)", [group]
        ),
        "lagging": lambda: log.rows(
            "select * from skep.lagging_partitions(null, null, 0, $1, 100, 0)", EXACT_MAX
        ),
        "preview": lambda: log.rows(
            "select * from skep.preview_seek($1, 'end', null, $2)", group, EXACT_MAX
        ),
        "step of a seek": lambda: log.rows(
            "select * from skep.seek_partitions($1, '', 100, 'end', null)", group
        ),
    }


async def rows_read(connect, partitions):
    log = MeteredLog(await connect(server_settings=dict(ONE_OFF)))
    group = await many_partitions(Log(log.connection), partitions)
    await log.execute("analyze")
    found = {}
    for name, call in listings(log, group).items():
        await call()
        found[name] = log.cost.rows
    return found


@pytest.mark.slow
async def test_three_times_as_many_partitions_cost_no_more(connect):
    few, many = [await rows_read(connect, partitions) for partitions in (FEW, MANY)]

    assert {name: many[name] / few[name] for name in few if many[name] > 1.2 * few[name]} == {}

"""A moment is safe when nothing stored up to it can still be committed."""

from datetime import timedelta

import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.log import NOON, Poll

MARK = "select * from skep.mark_time()"
MICROSECOND = timedelta(microseconds=1)


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def test_a_moment_at_which_nothing_runs_is_safe(log):
    row = await log.row(MARK)

    assert row["at"] == NOON - MICROSECOND
    assert row["running_from"] >= row["mark"]


async def test_a_moment_waits_for_a_push_that_began_before_it(log, other):
    [partition] = await log.provision("hive", "a")
    transaction = other.connection.transaction()
    await transaction.start()
    await other.push(partition, "x")

    marked = await log.row(MARK)
    await transaction.commit()
    later = await log.row(MARK)

    assert marked["running_from"] < marked["mark"]
    assert later["running_from"] >= marked["mark"]


async def test_a_push_that_begins_after_a_moment_does_not_hold_it_up(log, other):
    [partition] = await log.provision("hive", "a")
    marked = await log.row(MARK)
    transaction = other.connection.transaction()
    await transaction.start()
    await other.push(partition, "x")

    later = await log.row(MARK)
    await transaction.rollback()

    assert marked["mark"] <= later["running_from"] < later["mark"]


@pytest.mark.parametrize("variant", ["push_guaranteed", "push_contested", "push_to_poll"])
async def test_a_push_that_has_taken_its_time_is_known_to_run(log, other, observer, variant):
    """Else a moment after that time could be called safe before the push commits."""
    partition, group = await log.partition()
    versions = await log.versions([partition])
    transaction = log.connection.transaction()
    await transaction.start()
    await log.execute("lock table skep.queue in access exclusive mode")
    to_polls = variant == "push_to_poll"
    push = other.hand_over if to_polls else getattr(other, variant)
    polls = ({partition: (group, Poll())},) if to_polls else ()
    pushing = push({partition: ["x"]}, {partition: 0}, *polls, versions=versions)

    async with waiting(observer, other, pushing):
        is_known = await observer.value(
            "select backend_xid is not null from pg_stat_activity where pid = $1",
            other.connection.get_server_pid(),
        )
        await transaction.rollback()

    assert is_known

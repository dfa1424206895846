"""The duty that purges: every kind of record of which somebody must see to it that it ends."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from skep.broker.cluster.leadership import Term
from skep.broker.retention.retention import DAY_S, PURGE_BATCH, PurgeDuty
from skep.db.access.functions import Functions
from skep.db.access.slots import ONE_OFF, Slots
from tests.sql.support.housekeeping import SERVICE, Keeper
from tests.sql.support.letters import bury

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@pytest.fixture
def duty(arun, log, log_url):
    """A duty of a leader whose clock, the real one, is far ahead of the log's."""
    arun(log.set_clock(LONG_AGO))
    slots = Slots(log_url, size=1, server_settings=ONE_OFF, statement_timeout_s=10)
    keeper = arun(Keeper.appoint(log))
    arun(log.execute("update skep.leadership set expires_at = 'infinity'"))
    arun(slots.open())
    yield PurgeDuty(
        Functions(slots), Term(SERVICE, keeper.holder), dead_letter_s=DAY_S, history_days=1
    )
    arun(slots.close())


async def counts(log):
    tables = ("retention_history", "redrive", "redriven_letter", "dead_letter")
    return {name: await log.value(f"select count(*) from skep.{name}") for name in tables}


async def test_a_run_purges_every_kind_of_record(log, duty):
    await bury(log, "x")
    await log.value("select skep.record_removal($1, 1, 'retention', 1, 1, 1, $2)", uuid4(), log.now)
    job = uuid4()
    await log.value("select skep.start_redrive($1, '{}', '{}', null, 0, false, $1)", job)
    await log.value("select skep.finish_redrive($1, null, 'done', null)", job)

    assert await duty.run() is False

    left = await counts(log)
    assert {**left, "retention_history": 0} == dict.fromkeys(left, 0)
    assert [row["kind"] for row in await log.rows("select * from skep.retention_history")] == [
        "dead_letter"
    ]


async def test_a_full_batch_of_one_kind_is_followed_by_another(log, duty):
    await log.execute(
        """
        insert into skep.redriven_letter
        select n, 1, n, 1, 1, 'x', '', 1, 'epoch', 'epoch', 'epoch', 1, n
        from generate_series(1, $1::bigint) n
        """,
        PURGE_BATCH + 1,
    )

    assert [await duty.run(), await duty.run()] == [True, False]

    assert (await counts(log))["redriven_letter"] == 0

"""The schema moves forward while the load runs, and brokers of the old code go on with it."""

from pathlib import PurePath

import pytest

from skep.db.schema.catalog import SqlSource, bundled
from skep.db.schema.migrate import migrate, schema_state
from skep.db.schema.plan import SchemaTooNew
from tests.faults.support.instances import well_ending_instance
from tests.faults.support.ledger import require_good
from tests.faults.support.load import GROUP, load_on

pytestmark = pytest.mark.slow

STALL_S_MAX = 20
"""A bound for a migration that blocks everybody, not a promise: the machine may be busy."""
HOT = (
    "push_segments",
    "push_guaranteed",
    "push_contested",
    "push_to_poll",
    "pop_messages",
    "take_partitions",
    "ack_messages",
)
WIDER = """
alter table skep.queue add column widened integer;
alter table skep.partition add column widened integer;
alter table skep.cursor add column widened integer;
alter table skep.segment add column widened integer;
create table skep.widened (id integer primary key);
"""


def release(root, *, is_wider):
    """The SQL of a release to come: its hot functions differ, and it may widen the hot tables."""
    for each in (*bundled.migrations(), *bundled.functions(), *bundled.views()):
        text = each.text + "-- of the next release\n" if each.name in HOT else each.text
        path = root / each.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if is_wider:
        (root / "migrations" / "9999_widened.sql").write_text(WIDER)
    return SqlSource(root)


def names_of(paths):
    return {PurePath(path).stem for path in paths}


async def test_scenario_29_a_schema_that_moves_forward_under_load_stalls_nobody(
    database_url, queue, seed, tmp_path
):
    with well_ending_instance(database_url, "--workers", "2") as broker:
        async with load_on(broker, queue, seed) as load:
            await load.until_done(200)
            report = await migrate(database_url, source=release(tmp_path, is_wider=True))
            await load.until_done(load.done_count + 300)
            await load.drain()

    require_good(load.ledger, [GROUP])
    assert "migrations/9999_widened.sql" in report.applied
    assert {*HOT} <= names_of(report.created)
    assert load.stalls.longest_s < STALL_S_MAX


async def test_scenario_29_functions_go_back_under_load_within_a_level_of_migrations(
    database_url, queue, seed, tmp_path
):
    other = release(tmp_path, is_wider=False)
    with well_ending_instance(database_url, "--workers", "1") as broker:
        async with load_on(broker, queue, seed) as load:
            await load.until_done(100)
            there = await migrate(database_url, source=other)
            await load.until_done(load.done_count + 100)
            back = await migrate(database_url)
            await load.until_done(load.done_count + 100)
            await load.drain()

    require_good(load.ledger, [GROUP])
    assert (there.applied, back.applied) == ((), ())
    assert {*HOT} <= names_of(there.created) & names_of(back.created)
    assert load.stalls.longest_s < STALL_S_MAX


async def test_scenario_29_over_a_migration_there_is_no_way_back(database_url, tmp_path):
    await migrate(database_url, source=release(tmp_path, is_wider=True))

    state = await schema_state(database_url)

    assert state.verdict == "ahead"
    with pytest.raises(SchemaTooNew):
        await migrate(database_url)

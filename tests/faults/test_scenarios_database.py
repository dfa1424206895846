"""PostgreSQL restarts, stays away, runs out of disk, or is replaced by its standby."""

import asyncio
import os
import resource
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError

import asyncpg
import pytest

from skep.db.schema.migrate import migrate
from tests.faults.support.consumer import call
from tests.faults.support.failover import fail_over, pair_of_servers
from tests.faults.support.instances import well_ending_instance
from tests.faults.support.ledger import require_good
from tests.faults.support.load import GROUP, load_on
from tests.faults.support.mortal_postgres import (
    FAST,
    IMMEDIATE,
    KILL,
    MortalPostgres,
    mount_small_disk,
    unmount,
)
from tests.faults.support.storms import end_postgres
from tests.sql.support.waiting import eventually
from tests.support.postgres import make_reachable_directory

pytestmark = pytest.mark.slow

READY_S_MAX = 30
OUTAGE_S = 3
DISK_MIB = 12


@pytest.mark.parametrize("how", [FAST, IMMEDIATE, KILL], ids=["fast", "immediate", "kill -9"])
async def test_scenario_08_a_restart_of_postgres_under_load_loses_nothing(
    postgres, tmp_path, queue, seed, how
):
    with well_ending_instance(postgres.dsn, "--workers", "1", spill_dir=tmp_path) as broker:
        async with load_on(broker, queue, seed) as load:
            waits_s = await end_postgres(postgres, load, times=1, how=how)
            await load.drain()

    require_good(load.ledger, [GROUP])
    assert max(waits_s) < READY_S_MAX


async def status_of(broker, path):
    async with asyncio.timeout(10), broker.connect() as connection:
        return (await connection.call("GET", path)).status


async def test_scenario_09_without_postgres_pushes_are_buffered_and_keep_their_order(
    postgres, tmp_path, queue, seed
):
    settings = {"spill_dir": tmp_path, "spill_after_s": 0.2}
    with well_ending_instance(postgres.dsn, "--workers", "2", **settings) as broker:
        async with load_on(broker, queue, seed, backlog_max=5_000) as load:
            await load.until_done(100)
            before = await status_of(broker, "/livez"), await status_of(broker, "/readyz")
            await asyncio.to_thread(postgres.end, KILL)
            away_until = asyncio.get_running_loop().time() + OUTAGE_S
            await eventually(lambda: load.buffered_count >= 200)
            during = await status_of(broker, "/livez"), await status_of(broker, "/readyz")
            await asyncio.sleep(max(0, away_until - asyncio.get_running_loop().time()))
            await asyncio.to_thread(postgres.start)
            await load.until_done(load.done_count + 100)
            await load.drain()
        after = await eventually(lambda: is_ready(broker))

    require_good(load.ledger, [GROUP])
    assert (before, during, after) == ((200, 200), (200, 503), True)


async def is_ready(broker):
    return await status_of(broker, "/readyz") == 200


# Scenario 11: PostgreSQL's disk is full


@contextmanager
def small_disk():
    """A place for a tablespace that is soon full: a small disk, or files that may not grow.

    Only root can mount. Anybody can bound the files that his processes write, which fails at the
    same place with another reason.
    """
    directory = make_reachable_directory()
    place = directory / "small"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    is_mounted = mount_small_disk(place, size_mib=DISK_MIB)
    try:
        yield place, is_mounted
    finally:
        if is_mounted:
            unmount(place)
        shutil.rmtree(directory)


async def push_noise(broker, queue, number):
    """Push what does not compress; return its status, of which a refusal is one."""
    item = {"queue": queue, "transactionId": f"{number}", "payload": os.urandom(400_000).hex()}
    try:
        # Not by the usual connection: a broker tries for ten seconds before it gives up.
        push = {"items": [item]}
        (result,) = await asyncio.to_thread(call, f"{broker.url}/api/v1/push", push)
    except HTTPError as refused:
        refused.close()
        if refused.code not in {500, 503}:
            raise
        return "refused"
    return result["status"]


async def test_scenario_11_a_full_disk_of_postgres_is_told_and_heals_by_itself(
    postgres_dir, tmp_path, queue
):
    server = MortalPostgres(postgres_dir / "pg")
    with small_disk() as (place, is_mounted):
        server.start()
        try:
            await migrate(server.dsn)
            sql = await asyncpg.connect(server.dsn)
            await keep_segments_at(sql, server, place)
            told = await fill_disk(server, sql, is_mounted, tmp_path, queue)
            query = 'select transaction_id from skep.message where queue = $1 order by "offset"'
            stored = [row[0] for row in await sql.fetch(query, queue)]
            await sql.close()
        finally:
            server.stop()

    assert set(told[:-1]) == {"queued"}
    assert told[-1] != "queued", "the disk was never full"
    # What could not be stored is kept on the broker's own disk and stored later, or refused.
    accepted = [f"{n}" for n, status in enumerate(told) if status in {"queued", "buffered"}]
    assert stored == [*accepted, "healed"]


async def keep_segments_at(sql, server, place):
    if os.geteuid() == 0:
        own = Path(server.data_dir / "data").stat()
        os.chown(place, own.st_uid, own.st_gid)
    await sql.execute(f"create tablespace small location '{place}'")
    await sql.execute("alter table skep.segment set tablespace small")


async def fill_disk(server, sql, is_mounted, spill_dir, queue):
    """Push until the disk is full, make room, and push once more; return what was told."""
    settings = {"spill_dir": spill_dir, "connections": 1}
    with well_ending_instance(server.dsn, "--workers", "1", **settings) as broker:
        told = [await push_noise(broker, queue, 0)]
        if not is_mounted:
            await bound_files(sql, DISK_MIB << 20)
        while told[-1] == "queued":
            told.append(await push_noise(broker, queue, len(told)))
        # Room is made as an operator does it, and nothing else.
        if not is_mounted:
            await bound_files(sql, resource.RLIM_INFINITY)
        await sql.execute("alter table skep.segment set tablespace pg_default")
        assert await push_noise(broker, queue, "healed") in {"queued", "buffered"}
        await eventually(lambda: count_stored(sql, queue, "healed"))
    return told


async def count_stored(sql, queue, name):
    query = "select count(*) from skep.message where queue = $1 and transaction_id = $2"
    return await sql.fetchval(query, queue, name)


async def bound_files(sql, size):
    """Bound the files of every session of the server but this one."""
    query = "select pid from pg_stat_activity where pid <> pg_backend_pid()"
    for row in await sql.fetch(query):
        with suppress(ProcessLookupError):
            resource.prlimit(row[0], resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


# Scenario 12: the standby takes over


async def test_scenario_12_a_failover_to_the_synchronous_standby_loses_nothing(
    postgres_dir, tmp_path, queue, seed
):
    async with pair_of_servers(postgres_dir, is_synchronous=True) as (primary, standby):
        load = await fail_over(primary, standby, tmp_path, queue, seed)

    require_good(load.ledger, [GROUP])

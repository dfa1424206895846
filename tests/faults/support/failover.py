"""A primary that dies under load and a standby that takes its place and its address."""

import asyncio
from contextlib import asynccontextmanager

import asyncpg

from skep.db.schema.migrate import migrate
from tests.faults.support.instances import end_well, instance
from tests.faults.support.load import load_on
from tests.faults.support.mortal_postgres import KILL, MortalPostgres, Standby
from tests.faults.support.network import network_to
from tests.sql.support.waiting import eventually


@asynccontextmanager
async def pair_of_servers(directory, *, is_synchronous):
    """Run a primary with the schema, and a standby that its commits wait for, or do not."""
    primary = MortalPostgres(directory / "primary")
    primary.start()
    standby = Standby(primary, directory / "standby")
    try:
        await migrate(primary.dsn)
        await asyncio.to_thread(standby.start)
        if is_synchronous:
            await require_synchronous(primary)
        yield primary, standby
    finally:
        standby.stop()
        primary.stop()


async def require_synchronous(primary):
    sql = await asyncpg.connect(primary.dsn)
    await sql.execute("alter system set synchronous_standby_names = 'standby'")
    await sql.execute("select pg_reload_conf()")
    query = "select count(*) from pg_stat_replication where sync_state = 'sync'"
    await eventually(lambda: sql.fetchval(query))
    await sql.close()


async def fail_over(primary, standby, spill_dir, queue, seed, **options):
    """Kill the primary under load, let the standby take over; return the load afterwards."""
    async with network_to(primary.port) as address:
        url = primary.dsn.replace(f":{primary.port}/", f":{address.port_here}/")
        settings = {"spill_dir": spill_dir, "spill_after_s": 0.2}
        running = instance(url, "--workers", "1", **settings)
        # In a thread: the address that leads to the database is served by this loop.
        broker = await asyncio.to_thread(running.__enter__)
        try:
            async with load_on(broker, queue, seed, **options) as load:
                await load.until_done(200)
                await asyncio.to_thread(primary.end, KILL)
                await asyncio.to_thread(standby.promote)
                # As a virtual address moves: old connections are gone, new ones lead elsewhere.
                address.port = standby.port
                address.cut_all()
                await load.until_done(load.done_count + 200)
                await load.drain()
            await asyncio.to_thread(end_well, broker)
        finally:
            running.__exit__(None, None, None)
    return load

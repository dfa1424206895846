"""Disks that are full again and again under load: that of PostgreSQL's messages, and the spool's.

Both are small disks of their own, filled up by a ballast beside what the servers keep there, so
that the failure is the real one (ENOSPC) and ends when somebody makes room. Only root can mount.
"""

import asyncio
import os
import shutil
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import asyncpg

from tests.faults.support.mortal_postgres import KILL, mount_small_disk, unmount
from tests.support.postgres import make_reachable_directory

DISK_MIB = 48
BLOCK = bytes(64 << 10)
FULL_S = 3


class SmallDisk:
    """A mounted disk that can be filled and cleared."""

    def __init__(self, place):
        self.place = place
        self._ballast = place / "ballast"

    async def full(self, seconds, is_noticed):
        """Leave no room for so long, and until somebody noticed; then make room."""
        filling = asyncio.ensure_future(self._fill())
        try:
            await asyncio.sleep(seconds)
            while not is_noticed():
                await asyncio.sleep(0.05)
        finally:
            filling.cancel()
            with suppress(asyncio.CancelledError):
                await filling
            self._ballast.unlink(missing_ok=True)

    async def _fill(self):
        """Take what is free, also what becomes free meanwhile."""
        with self._ballast.open("wb", buffering=0) as ballast:
            while True:
                with suppress(OSError):
                    while ballast.write(BLOCK):
                        pass
                await asyncio.sleep(0.02)


@contextmanager
def small_disks(count):
    """Mount small disks for the time of a storm."""
    directory = make_reachable_directory()
    places = [directory / f"disk-{number}" for number in range(count)]
    mounted = []
    try:
        for place in places:
            place.mkdir(mode=0o777)
            place.chmod(0o777)
            if not mount_small_disk(place, size_mib=DISK_MIB):
                raise PermissionError("this storm mounts small disks, which takes root")
            mounted.append(place)
        yield [SmallDisk(place) for place in places]
    finally:
        for place in mounted:
            unmount(place)
        shutil.rmtree(directory)


async def keep_segments_at(server, place):
    """Let PostgreSQL keep messages on this disk; return how to undo it."""
    if os.geteuid() == 0:
        own = Path(server.data_dir / "data").stat()
        os.chown(place, own.st_uid, own.st_gid)
    await run_sql(
        server,
        f"create tablespace small location '{place}'",
        "alter table skep.segment set tablespace small",
    )

    async def undo():
        await run_sql(
            server, "alter table skep.segment set tablespace pg_default", "drop tablespace small"
        )

    return undo


async def run_sql(server, *statements):
    sql = await asyncpg.connect(server.dsn)
    try:
        for statement in statements:
            await sql.execute(statement)
    finally:
        await sql.close()


async def fill_both(server, load, messages, spool, *, times):
    """Fill PostgreSQL's disk, and then the spool's in an outage; return how often 503 was said."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(await keep_segments_at(server, messages.place))
        for _ in range(times):
            await load.until_done(load.done_count + 200)
            buffered = load.buffered_count
            # PostgreSQL refuses what it has no room for, and the spool has some.
            await messages.full(FULL_S, lambda before=buffered: load.buffered_count > before)
            await load.until_done(load.done_count + 200)
            await asyncio.to_thread(server.end, KILL)
            refused = load.statuses[503]
            # Now nobody has room, and producers are told so.
            await spool.full(FULL_S, lambda before=refused: load.statuses[503] > before + 10)
            await asyncio.to_thread(server.start)
        await load.drain()
    return load.statuses[503]

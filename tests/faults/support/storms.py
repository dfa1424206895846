"""What goes wrong, for how long: the same storms in the short form of a test and in a soak."""

import asyncio
from contextlib import asynccontextmanager

from tests.faults.support.network import Treatment


@asynccontextmanager
async def under(load):
    """Run a load until the block is left."""
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        try:
            yield
        finally:
            load.finish()


async def kill_brokers(fleet, size, *, kills, pause_s, random):
    """Kill one instance after the other, and start each again."""
    for _ in range(kills):
        await asyncio.sleep(random.uniform(*pause_s))
        position = random.randrange(size)
        await fleet.kill(position)
        await fleet.start(position)


async def kill_brokers_for(fleet, size, seconds, *, pause_s, random):
    """Do so for some time; return how many were killed."""
    ends_at = asyncio.get_running_loop().time() + seconds
    kills = 0
    while asyncio.get_running_loop().time() < ends_at:
        await kill_brokers(fleet, size, kills=1, pause_s=pause_s, random=random)
        kills += 1
    return kills


async def end_postgres(postgres, load, *, times, how, done_between=50, seconds=0):
    """End PostgreSQL so many times under load, and go on until so many seconds have passed.

    Returns how long each return to work took.
    """
    waits_s = []
    until = asyncio.get_running_loop().time() + seconds
    while len(waits_s) < times or asyncio.get_running_loop().time() < until:
        await load.until_done(load.done_count + done_between)
        await asyncio.to_thread(postgres.end, how)
        await asyncio.to_thread(postgres.start)
        began = asyncio.get_running_loop().time()
        await load.until_done(load.done_count + 1)
        waits_s.append(asyncio.get_running_loop().time() - began)
    return waits_s


def treat_badly(random):
    """Choose what happens to a connection. None lives for ever, or all would be good in the end."""
    choices = [
        Treatment(answer_bytes=random.randint(20_000, 200_000)),
        Treatment(answer_bytes=random.randint(20_000, 200_000)),
        Treatment(latency_s=0.5, answer_bytes=random.randint(1_000, 20_000)),
        Treatment(answer_bytes=random.randint(1, 20_000)),
        Treatment(question_bytes=random.randint(1, 5_000)),
        Treatment(is_half_open=True),
        Treatment(pause_s=1),
    ]
    return random.choice(choices)

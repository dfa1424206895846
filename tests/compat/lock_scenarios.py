"""What users of Queen's Python client do with locks, written against its public interface."""

import asyncio

import stage


async def hold(queen, name):
    first = queen.lock(name, ttl_seconds=30)
    second = queen.lock(name, ttl_seconds=30)
    acquired = [await first.acquire(), await second.acquire()]
    token = first.token
    renewed = await first.renew()
    shown = await queen.locks.get(name)
    released = await first.release()
    waited = await second.acquire(wait=10)
    return {
        "acquired": acquired,
        "renewed": [renewed, shown["holders"][0]["token"] > token],
        "held": [bool(shown), [each["owner"] == first.owner for each in shown["holders"]]],
        "released": released,
        "waited": waited,
        "free": [await second.release(), bool(await queen.locks.get(name))],
    }


async def share(queen, name):
    permits = [queen.semaphore(name, 2, ttl_seconds=30) for _ in range(3)]
    acquired = [await each.acquire() for each in permits]
    slots = sorted(each.slot for each in permits[:2])
    async with queen.lock(f"{name}-other", ttl_seconds=30) as lock:
        held = lock.held
    result = await lock.run(lambda held: asyncio.sleep(0, held.held))
    return {"acquired": acquired, "slots": slots, "run": result, "entered": held}


async def take_back(queen, name):
    lock = queen.lock(name, ttl_seconds=30, auto_renew=False)
    await lock.acquire()
    await queen.kv.delete("queen-locks", f"{name}#0")
    other = queen.lock(name, ttl_seconds=30)
    return {"acquired": await other.acquire(), "renewed": await lock.renew(), "held": lock.held}


async def guard(queen, name):
    lock = queen.lock(name, ttl_seconds=30, auto_renew=False)
    await lock.acquire()

    async def push(number):
        bundle = queen.transaction().guard(lock)
        return await bundle.queue(name).push([{"data": number}]).commit()

    held = await push(1)
    await queen.kv.delete("queen-locks", f"{name}#0")
    await queen.lock(name, ttl_seconds=30).acquire()
    lost = await push(2)
    messages = await queen.queue(name).batch(10).pop()
    return {
        "success": [held["success"], lost["success"]],
        "lost": [lost["reason"], lost["kvReason"], lock.held],
        "stored": stage.payloads(messages),
    }


if __name__ == "__main__":
    stage.play(globals())

"""Random messages, and the windows that the streams SDK makes of them.

Run as `python sdk_windows.py <broker url> <queue> <seed>`, with a client to import as `queen`. The
last line of the output has the windows by kind, as JSON. Nothing here knows of Skep.
"""

import asyncio
import json
import random
import sys

from queen import Queen
from queen.streams import Stream

PATIENCE_S = 150
KEYS = "uvwx"
PARTITIONS = "ab"
COUNT = 120
STEP_MS = 500
CLOSING_MS = 10_000_000
LATENESS_S = 5
WINDOWS = {
    "tumbling": lambda stream, **time: stream.window_tumbling(seconds=7, **time),
    "sliding": lambda stream, **time: stream.window_sliding(size=9, slide=3, **time),
    "session": lambda stream, **time: stream.window_session(gap=2, **time),
}


def messages(chance, disorder_ms):
    """Return messages of one partition. Times are multiples of a step, so gaps are often exact."""
    at, made = 0, []
    for _ in range(COUNT):
        at += chance.choice([0, 1, 1, 2, 4, 5]) * STEP_MS
        early = chance.randrange(0, disorder_ms + 1, STEP_MS)
        made.append(
            {"at": max(at - early, 0), "n": chance.randrange(-50, 50), "key": chance.choice(KEYS)}
        )
    return [*made, {"at": CLOSING_MS, "n": 0, "key": "closing"}]


async def push(queen, queue, seed):
    chance = random.Random(seed)
    # A session of the SDK depends on the order of messages; the other windows do not.
    for name, disorder_ms in ((f"{queue}-mixed", 4_000), (f"{queue}-ordered", 0)):
        for partition in PARTITIONS:
            items = [{"data": each} for each in messages(chance, disorder_ms)]
            await queen.queue(name).partition(partition).push(items)


async def windows(queen, url, queue, kind):
    source = f"{queue}-{'ordered' if kind == 'session' else 'mixed'}"
    keyed = Stream.from_(queen.queue(source)).key_by(lambda message: message["data"]["key"])
    window = WINDOWS[kind](
        keyed,
        event_time=lambda message: message["data"]["at"],
        allowed_lateness=LATENESS_S,
    )
    of_each = dict.fromkeys(["count", "sum", "min", "max"], lambda message: message["n"])
    stream = (
        window.aggregate({**of_each, "count": lambda _message: 1})
        .map(
            lambda value, ctx: {
                "row": [
                    ctx["partition"], ctx["key"], ctx["windowStart"], ctx["windowEnd"],
                    value["count"], value["sum"], value["min"], value["max"],
                ]
            }
        )
        .to(queen.queue(f"{queue}-sdk-{kind}"))
    )  # fmt: skip
    options = {"query_id": f"{queue}-{kind}", "url": url, "max_wait_millis": 200, "batch_size": 37}
    runner = await stream.run(**options)
    async with asyncio.timeout(PATIENCE_S):
        while runner.metrics()["messagesTotal"] < len(PARTITIONS) * (COUNT + 1):
            await asyncio.sleep(0.02)
    await runner.stop()
    return await drain(queen, f"{queue}-sdk-{kind}")


async def drain(queen, queue):
    found = []
    while True:
        taken = await queen.queue(queue).batch(500).partitions(10).wait(False).pop()
        if not taken:
            return found
        found += [message["data"]["row"] for message in taken]
        await queen.ack(taken, True)


async def main(url, queue, seed):
    async with Queen(url) as queen:
        await push(queen, queue, int(seed))
        found = {kind: await windows(queen, url, queue, kind) for kind in WINDOWS}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

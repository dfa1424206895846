"""What users of Queen's streams SDK do, written against its public interface.

Played as `stage` says.
"""

import asyncio
from contextlib import asynccontextmanager

import stage
from queen.streams import Stream, sliding_window_gate, token_bucket_gate

PATIENCE_S = 40


@asynccontextmanager
async def running(stream, queue, **options):
    """Run a stream; it must not have met any error when the block is left."""
    errors = []
    settings = {"max_wait_millis": 200, "on_error": lambda error, _: errors.append(str(error))}
    runner = await stream.run(
        query_id=f"{queue}-query", url=stage.broker_url(), **settings, **options
    )
    try:
        yield runner
    finally:
        await runner.stop()
    if errors:
        raise RuntimeError(f"the stream failed: {errors}")


async def collect(queen, queue, is_enough):
    """Take what comes out of a queue until it is enough."""
    found = []
    async with asyncio.timeout(PATIENCE_S):
        while not is_enough(found):
            messages = await queen.queue(queue).batch(100).partitions(10).timeout_millis(500).pop()
            found += [message["data"] for message in messages]
            if messages:
                await queen.ack(messages, True)
    return found


async def until_processed(runner, count):
    async with asyncio.timeout(PATIENCE_S):
        while runner.metrics()["messagesTotal"] < count:
            await asyncio.sleep(0.01)


async def map_every_message(queen, queue):
    stream = (
        Stream.from_(queen.queue(queue))
        .map(lambda message: {"n": message["data"]["n"] * 10})
        .to(queen.queue(f"{queue}-sink"))
    )
    for partition in ("a", "b"):
        items = [{"data": {"n": number, "partition": partition}} for number in range(5)]
        await queen.queue(queue).partition(partition).push(items)
    async with running(stream, queue):
        found = await collect(queen, f"{queue}-sink", lambda found: len(found) >= 10)
    return {"numbers": sorted(each["n"] for each in found)}


async def sum_by_event_time(queen, queue):
    sink = f"{queue}-sink"
    stream = (
        Stream.from_(queen.queue(queue))
        .window_tumbling(seconds=60, event_time=lambda message: message["data"]["at"])
        .aggregate({"count": lambda _message: 1, "sum": lambda message: message["n"]})
        .map(lambda value, ctx: {**value, "start": ctx["windowStart"]})
        .to(queen.queue(sink))
    )

    async def push(*pairs):
        items = [{"data": {"at": at, "n": n}} for at, n in pairs]
        await queen.queue(queue).partition("p").push(items)

    async with running(stream, queue) as runner:
        await push((1_000, 1), (2_000, 2))
        await until_processed(runner, 2)
        await push((3_000, 4), (61_000, 8))
        await until_processed(runner, 4)
    # Another runner of the query goes on where the first stopped.
    async with running(stream, queue) as runner:
        await push((130_000, 16))
        found = await collect(queen, sink, lambda found: len(found) >= 2)
    return {"windows": found}


async def flush_idle_windows(queen, queue):
    sink = f"{queue}-sink"
    stream = (
        Stream.from_(queen.queue(queue))
        .window_tumbling(seconds=1, idle_flush_ms=100)
        .reduce(lambda total, value: total + value["n"], 0)
        .to(queen.queue(sink))
    )
    items = [{"data": {"n": 1}} for _ in range(20)]
    await queen.queue(queue).partition("p").push(items)
    async with running(stream, queue) as runner:
        found = await collect(queen, sink, lambda found: sum(each["value"] for each in found) >= 20)
        flushes = runner.metrics()["flushCyclesTotal"]
    return {"total": sum(each["value"] for each in found), "is_flushed": flushes > 0}


async def hold_back_at_a_gate(queen, queue):
    await queen.queue(queue).config({"lease_time": 1}).create()
    await queen.queue(queue).partition("p").push([{"data": {"n": number}} for number in range(6)])
    sink = f"{queue}-sink"
    bucket = token_bucket_gate(capacity=2, refill_per_sec=2)
    stream = Stream.from_(queen.queue(queue)).gate(bucket).to(queen.queue(sink))
    async with running(stream, queue) as runner:
        found = await collect(queen, sink, lambda found: len(found) >= 6)
        denials = runner.metrics()["gateDenialsTotal"]
    return {"numbers": [each["n"] for each in found], "was_denied": denials > 0}


async def change_the_pipeline(queen, queue):
    source, sink = queen.queue(queue), queen.queue(f"{queue}-sink")
    async with running(Stream.from_(source).map(lambda message: message).to(sink), queue):
        pass
    changed = Stream.from_(source).filter(lambda _message: True).to(sink)
    try:
        async with running(changed, queue):
            refused = None
    except Exception as error:  # noqa: BLE001 -- where the error lives differs between versions
        refused = str(error)
    async with running(changed, queue, reset=True):
        return {"refused": refused}


async def count_words(queen, queue, window, expected):
    """Count words by key in windows of event time; return the windows that closed."""
    sink = f"{queue}-sink"
    messages = Stream.from_queue(queen.queue(queue)).filter(
        lambda each: "noise" not in each["data"]
    )
    words = messages.flat_map(lambda each: each["data"]["words"])
    stream = (
        window(words.key_by(lambda each: each["data"]["key"]))
        .reduce(lambda total, _word: total + 1, 0)
        .map(lambda total, ctx: {"key": ctx["key"], "start": ctx["windowStart"], "words": total})
        .to(queen.queue(sink), partition=lambda value: value["key"])
    )
    items = [
        {"at": 11_000, "key": "a", "words": ["x", "y"]},
        {"at": 11_000, "key": "b", "words": ["x"]},
        {"noise": True},
        {"at": 13_000, "key": "a", "words": ["z"]},
        # Far behind everything: it closes the windows before it and stays open itself.
        {"at": 1_000_000, "key": "end", "words": ["x"]},
    ]
    await queen.queue(queue).partition("p").push([{"data": item} for item in items])
    async with running(stream, queue):
        found = await collect(queen, sink, lambda found: len(found) >= expected)
    return {"windows": sorted([each["key"], each["start"], each["words"]] for each in found)}


def event_time(message):
    return message["data"]["at"]


async def slide_a_window(queen, queue):
    def window(words):
        return words.window_sliding(size=4, slide=2, event_time=event_time)

    return await count_words(queen, queue, window, expected=5)


async def align_a_window_to_the_clock(queen, queue):
    def window(words):
        return words.window_cron(every="minute", event_time=event_time)

    return await count_words(queen, queue, window, expected=2)


async def close_sessions(queen, queue):
    def window(words):
        return words.window_session(gap=10, event_time=event_time)

    return await count_words(queen, queue, window, expected=2)


async def call_for_each(queen, queue):
    await queen.queue(queue).push([{"data": {"n": number}} for number in range(5)])
    seen, is_done = [], asyncio.Event()

    async def remember(value):
        seen.append(value["n"])
        if len(seen) == 5:
            is_done.set()

    async with running(Stream.from_(queen.queue(queue)).foreach(remember), queue):
        async with asyncio.timeout(PATIENCE_S):
            await is_done.wait()
    return {"seen": seen}


async def limit_by_a_sliding_window(queen, queue):
    await queen.queue(queue).config({"lease_time": 1}).create()
    await queen.queue(queue).partition("p").push([{"data": {"n": number}} for number in range(4)])
    sink = f"{queue}-sink"
    gate = sliding_window_gate(limit=2, window_sec=1)
    stream = Stream.from_(queen.queue(queue)).gate(gate).to(queen.queue(sink))
    async with running(stream, queue) as runner:
        found = await collect(queen, sink, lambda found: len(found) >= 4)
        denials = runner.metrics()["gateDenialsTotal"]
    return {"numbers": [each["n"] for each in found], "was_denied": denials > 0}


if __name__ == "__main__":
    stage.play(globals())

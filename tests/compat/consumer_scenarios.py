"""What users of Queen's Python client do with its consumers.

Played as `stage` says.
"""

import asyncio

import stage
from stage import payloads

POLL_MS = 200


async def consume_each(queen, queue):
    await queen.queue(queue).push([{"data": number} for number in range(5)])
    seen = []

    async def handle(message):
        seen.append(message["data"])

    await queen.queue(queue).batch(2).limit(5).each().consume(handle)
    return {"seen": seen, "left": await queen.queue(queue).wait(False).pop()}


async def consume_batches_until_idle(queen, queue):
    for partition in ("a", "b"):
        items = [{"data": number} for number in range(10)]
        await queen.queue(queue).partition(partition).push(items)
    batches = []

    async def handle(messages):
        batches.append(payloads(messages))

    consumer = queen.queue(queue).group("g").batch(5).timeout_millis(POLL_MS).idle_millis(POLL_MS)
    await consumer.concurrency(2).consume(handle)
    return {
        "batches": sorted(batches),
        "left": await queen.queue(queue).group("g").wait(False).pop(),
    }


async def consume_what_arrives_later(queen, queue):
    seen = []

    async def handle(message):
        seen.append(message["data"])

    consumer = queen.queue(queue).batch(1).partitions(1).limit(3).consume(handle)

    async def produce():
        for number in range(3):
            await queen.queue(queue).push({"data": number})

    await asyncio.gather(consumer, produce())
    return {"seen": seen}


async def consume_with_failures(queen, queue):
    await queen.queue(queue).config({"retry_delay": 0, "retry_limit": 2}).create()
    await queen.queue(queue).push([{"data": "bad"}, {"data": "good"}])
    seen = []

    async def handle(message):
        seen.append(message["data"])
        if message["data"] == "bad":
            raise RuntimeError("cannot do that")

    consumer = queen.queue(queue).batch(1).partitions(1).limit(4).each()
    await consumer.consume(handle)
    return {"seen": seen, "left": await queen.queue(queue).wait(False).pop()}


async def consume_with_renewal(queen, queue):
    await queen.queue(queue).config({"lease_time": 1}).create()
    await queen.queue(queue).push({"data": 1})
    seen = []

    async def handle(message):
        # Longer than the lease. A poll that waits so long would get the message if it expired.
        meanwhile = await queen.queue(queue).batch(1).timeout_millis(1500).pop()
        seen.append([message["data"], meanwhile])

    consumer = queen.queue(queue).batch(1).limit(1).renew_lease(True, 300)
    await consumer.consume(handle)
    return {"seen": seen, "left": await queen.queue(queue).wait(False).pop()}


async def trace(queen, queue):
    await queen.queue(queue).push({"data": {"n": 1}})
    seen = {}

    async def handle(message):
        seen["recorded"] = await message["trace"](
            {"traceName": [f"{queue}/steps", "all"], "eventType": "step", "data": {"at": 1}}
        )
        seen["address"] = message["partitionId"], message["transactionId"]

    await queen.queue(queue).each().limit(1).consume(handle)
    return {
        "recorded": seen["recorded"],
        "of_message": await queen.admin.get_traces_for_message(*seen["address"]),
        "by_name": await queen.admin.get_traces_by_name(f"{queue}/steps", limit=10),
        "names": await queen.admin.get_trace_names(limit=10),
    }


async def consume_with_callbacks(queen, queue):
    await queen.queue(queue).push([{"data": number} for number in range(3)])
    seen = []

    async def handle(message):
        if message["data"] == 1:
            raise RuntimeError("cannot do that")
        return message["data"] * 10

    # Who gives callbacks acknowledges in them.
    async def succeed(message, result):
        seen.append(["succeeded", result])
        await queen.ack(message, True)

    async def fail(message, error):
        seen.append(["failed", str(error)])
        await queen.ack(message, "dlq", {"error": str(error)})

    consumer = queen.queue(queue).batch(1).partitions(1).limit(3).consume(handle)
    await consumer.on_success(succeed).on_error(fail)
    (letter,) = (await queen.queue(queue).dlq().get())["messages"]
    return {
        "seen": seen,
        "dead": [letter["data"], letter["errorMessage"]],
        "left": await queen.queue(queue).wait(False).pop(),
    }


async def consume_without_acknowledging(queen, queue):
    await queen.queue(queue).config({"lease_time": 1}).create()
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    seen = []

    async def handle(messages):
        seen.append(payloads(messages))
        if len(seen) == 2:
            await queen.ack(messages, True)

    # Nobody acknowledges the first delivery, so it comes again when its lease is over.
    await queen.queue(queue).auto_ack(False).batch(10).limit(4).consume(handle)
    return {"seen": seen, "left": await queen.queue(queue).wait(False).pop()}


async def consume_batches_that_fail(queen, queue):
    await queen.queue(queue).config({"retry_delay": 0}).create()
    await queen.queue(queue).push([{"data": number} for number in range(3)])
    seen = []

    async def handle(messages):
        seen.append(payloads(messages))
        if len(seen) == 1:
            raise RuntimeError("cannot do that")

    await queen.queue(queue).batch(10).limit(6).consume(handle)
    return {"seen": seen, "left": await queen.queue(queue).wait(False).pop()}


async def consume_one_partition(queen, queue):
    for partition in ("a", "b"):
        await queen.queue(queue).partition(partition).push([{"data": partition}])
    seen = []

    async def handle(message):
        seen.append(message["data"])

    consumer = queen.queue(queue).partition("b").batch(1).limit(1).wait(False)
    await consumer.consume(handle)
    return {"seen": seen}


async def consume_until_told_to_stop(queen, queue):
    await queen.queue(queue).push([{"data": number} for number in range(5)])
    seen, enough = [], asyncio.Event()

    async def handle(message):
        seen.append(message["data"])
        if len(seen) == 2:
            enough.set()

    await queen.queue(queue).batch(5).each().consume(handle, signal=enough)
    return {"seen": seen}


async def consume_a_namespace(queen, queue):
    space = f"space-of-{queue}"
    for task in ("count", "bill"):
        name = f"{queue}-{task}"
        await queen.queue(name).namespace(space).task(task).config({}).create()
        await queen.queue(name).push([{"data": f"{task}{number}"} for number in range(2)])
    seen = {"space": [], "task": []}

    def remember(kind):
        async def handle(message):
            seen[kind].append(message["data"])

        return handle

    whole = queen.queue().namespace(space).group("g").batch(5).limit(4).each()
    await whole.consume(remember("space"))
    one = queen.queue().namespace(space).task("bill").group("h").batch(5).limit(2).each()
    await one.consume(remember("task"))
    return {"space": sorted(seen["space"]), "task": seen["task"]}


async def consume_the_newest_only(queen, queue):
    for partition in ("a", "b"):
        items = [{"data": f"{partition}{number}"} for number in range(5)]
        await queen.queue(queue).partition(partition).push(items)
    seen = []

    async def handle(message):
        seen.append(message["data"])

    group = queen.queue(queue).group("g").subscription_mode("all").conflation()
    await group.batch(10).each().limit(2).consume(handle)
    return {"seen": sorted(seen), "left": await group.wait(False).pop()}


if __name__ == "__main__":
    stage.play(globals())

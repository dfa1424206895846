"""What users of Queen's Python client do, written against its public interface.

Run as `python scenarios.py <scenario> <broker url> <queue>` with a client to import as `queen`; the
last line of the output is what the scenario saw, as JSON. The file knows nothing of Skep.
"""

import asyncio
import json
import sys

from queen import Queen

POLL_MS = 200


def payloads(messages):
    return [message["data"] for message in messages]


async def push_and_pop(queen, queue):
    pushed = await queen.queue(queue).push({"data": {"n": 1, "s": "ü🐝"}})
    messages = await queen.queue(queue).batch(10).wait(False).pop()
    acked = await queen.ack(messages[0], True)
    return {
        "pushed": pushed,
        "messages": messages,
        "acked": acked,
        "left": await queen.queue(queue).wait(False).pop(),
    }


async def push_to_partitions(queen, queue):
    for partition in ("a", "b", "c"):
        items = [{"data": f"{partition}{number}"} for number in (1, 2)]
        await queen.queue(queue).partition(partition).push(items)
    of_b = await queen.queue(queue).partition("b").batch(10).wait(False).pop()
    others = await queen.queue(queue).batch(10).partitions(5).wait(False).pop()
    return {
        "b": payloads(of_b),
        "others": sorted(payloads(others)),
        "leases": len({message["leaseId"] for message in others}),
    }


async def push_duplicates(queen, queue):
    seen = {"stored": [], "duplicate": []}

    async def on_success(items):
        seen["stored"] += [item["transactionId"] for item in items]

    async def on_duplicate(items, _error):
        seen["duplicate"] += [item["transactionId"] for item in items]

    for transaction_ids in (["t1", "t2"], ["t2", "t3"]):
        items = [{"transactionId": each, "data": each} for each in transaction_ids]
        await queen.queue(queue).push(items).on_success(on_success).on_duplicate(on_duplicate)
    messages = await queen.queue(queue).batch(10).wait(False).pop()
    return {**seen, "messages": payloads(messages)}


async def subscribe(queen, queue):
    await queen.queue(queue).push({"data": "old"})
    started = await queen.queue(queue).group("g").subscription_mode("new").wait(False).pop()
    await queen.queue(queue).push({"data": "new"})
    return {
        "started": started,
        "new": payloads(await queen.queue(queue).group("g").batch(10).wait(False).pop()),
        "all": payloads(await queen.queue(queue).group("other").batch(10).wait(False).pop()),
    }


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


async def acknowledge(queen, queue):
    await queen.queue(queue).config({"retry_delay": 0}).create()
    await queen.queue(queue).push([{"data": number} for number in range(4)])

    async def pop():
        return await queen.queue(queue).group("g").batch(10).wait(False).pop()

    messages = await pop()
    failed = await queen.ack(messages[0], False, {"group": "g", "error": "boom"})
    again = await pop()
    again[0]["_status"], again[1]["_status"], again[1]["_error"] = True, False, "boom"
    mixed = await queen.ack(again[:2], True, {"group": "g"})
    rest = await pop()
    completed = await queen.ack(rest, True, {"group": "g"})
    stale = await queen.ack({**rest[0], "leaseId": messages[0]["leaseId"]}, False, {"group": "g"})
    return {
        "failed": failed["success"],
        "attempt": again[0]["deliveryAttempt"],
        "mixed": [result["success"] for result in mixed["results"]],
        "rest": payloads(rest),
        "completed": [result["success"] for result in completed["results"]],
        "stale": stale,
        "left": await pop(),
    }


async def renew(queen, queue):
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    messages = await queen.queue(queue).batch(10).wait(False).pop()
    return {
        "lease": messages[0]["leaseId"],
        "by_message": await queen.renew(messages[0]),
        "by_messages": await queen.renew(messages),
        "unknown": await queen.renew("00000000-0000-4000-8000-000000000000"),
    }


async def commit_transactions(queen, queue):
    sink = f"{queue}-sink"
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    messages = await queen.queue(queue).batch(10).wait(False).pop()

    def transaction(message, *items):
        return queen.transaction().ack(message).queue(sink).partition("p").push(list(items))

    committed = await transaction(messages[0], {"data": "a"}, {"data": "b"}).commit()
    whole = await transaction(messages[1], {"data": "c"}).commit()
    try:
        await transaction(messages[1], {"data": "never"}).commit()
        refused = None
    except Exception as error:  # noqa: BLE001 -- the client raises nothing more specific
        refused = str(error)
    return {
        "committed": [committed["success"], len(committed["results"]), whole["success"]],
        "refused": refused,
        "sink": payloads(await queen.queue(sink).batch(10).wait(False).pop()),
        "left": await queen.queue(queue).wait(False).pop(),
    }


async def buffer(queen, queue):
    options = {"message_count": 10, "time_millis": 60_000}
    for number in range(25):
        await queen.queue(queue).buffer(options).push({"data": number})
    await queen.queue(queue).flush_buffer()
    flushed = await queen.queue(queue).batch(100).wait(False).pop()
    await queen.ack(flushed, True)
    await queen.queue(queue).buffer(options).push({"data": "last"})
    waiting = queen.get_buffer_stats()["totalBufferedMessages"]
    await queen.flush_all_buffers()
    return {
        "flushed": payloads(flushed),
        "waiting": waiting,
        "last": payloads(await queen.queue(queue).batch(100).wait(False).pop()),
    }


async def configure(queen, queue):
    builder = queen.queue(queue).namespace("shop").task("bill")
    plain = await queen.queue(f"{queue}-plain").create()
    return {"plain": plain, "chosen": await builder.config({"lease_time": 7}).create()}


async def look_at_health(queen, _queue):
    return await queen.admin.health()


async def leave_sizes_to_the_broker(queen, queue):
    await queen.queue(queue).push([{"data": number} for number in range(30)])
    result = await queen.queue(queue).group("g").wait(False).pop_result()
    empty = await queen.queue(queue).group("g").wait(False).pop_result()
    return {
        "count": len(result.messages),
        "chosen": result.autopilot._asdict(),
        "empty": [empty.messages, empty.autopilot],
    }


async def ask_for_conflation(queen, queue):
    # The client raises when it asked for it and the broker does not say that it conflates.
    group = queen.queue(queue).group("g").subscription_mode("all").conflation().batch(10)
    empty = await group.wait(False).pop()
    await queen.queue(queue).push([{"data": number} for number in range(3)])
    return {"empty": empty, "newest": payloads(await group.wait(False).pop())}


async def pop_by_namespace(queen, queue):
    await queen.queue(queue).namespace(f"space of {queue}").task("count").config({}).create()
    await queen.queue(queue).push([{"data": number} for number in range(3)])
    found = queen.queue().namespace(f"space of {queue}").task("count").batch(10).wait(False)
    return {"seen": payloads(await found.pop())}


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


async def main(scenario, url, queue):
    queen = Queen(url)
    seen = await globals()[scenario](queen, queue)
    await queen.close()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

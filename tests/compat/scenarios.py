"""What users of Queen's Python client do, written against its public interface.

Played as `stage` says. Consumers, the admin interface and streams have files of their own.
"""

from datetime import timedelta

import stage
from queen import Queen
from stage import error_of, payloads


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
    refused = await error_of(transaction(messages[1], {"data": "never"}).commit())
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


async def push_what_clients_may_push(queen, queue):
    trace_id = "11111111-1111-4111-8111-111111111111"
    items = [
        {"payload": {"n": 1}, "traceId": trace_id},
        {"data": None},
        {"just": "members"},
        {"data": [0, "", False]},
    ]
    await queen.queue(queue).push(items)
    messages = await queen.queue(queue).batch(10).wait(False).pop()
    return {"payloads": payloads(messages), "trace": messages[0]["traceId"] == trace_id}


async def push_with_callbacks(queen, queue):
    seen = []

    def remember(outcome):
        async def callback(items, _error=None):
            seen.append([outcome, [item["transactionId"] for item in items]])

        return callback

    for transaction_id in ("t1", 7):
        push = queen.queue(queue).push({"data": 1, "transactionId": transaction_id})
        await push.on_success(remember("stored")).on_error(remember("refused"))
    refused = await error_of(queen.queue(queue).push({"data": 1, "transactionId": 7}))
    return {"seen": seen, "refused": refused}


async def name_things_freely(queen, queue):
    name, partition = f"{queue} ü", "part 1 & 2"
    await queen.queue(name).partition(partition).push({"data": 1})
    found = queen.queue(name).partition(partition).group("g: 100%")
    messages = await found.wait(False).pop()
    acked = await queen.ack(messages, True, {"group": "g: 100%"})
    return {"messages": payloads(messages), "acked": acked["results"][0]["success"]}


async def subscribe_from_a_time(queen, queue):
    await queen.queue(queue).push({"data": "old"})
    (old,) = await queen.queue(queue).wait(False).pop()

    async def pop(group, mode=None, start=None):
        builder = queen.queue(queue).group(group).batch(10).wait(False)
        if mode:
            builder.subscription_mode(mode)
        if start:
            builder.subscription_from(start)
        return payloads(await builder.pop())

    started = {
        "now": await pop("now", start="now"),
        "new-only": await pop("new-only", mode="new-only"),
        "all": await pop("all", mode="all"),
        "then": await pop("then", start=old["createdAt"]),
        "1970": await pop("1970", start="1970-01-01T00:00:00Z"),
        "2999": await pop("2999", start="2999-01-01T00:00:00Z"),
    }
    await queen.queue(queue).partition("later").push({"data": "new"})
    return {"started": started, "new": [await pop("now"), await pop("new-only")]}


async def acknowledge_by_words(queen, queue):
    await queen.queue(queue).push([{"data": number} for number in range(4)])

    async def pop(count):
        return await queen.queue(queue).batch(count).wait(False).pop()

    (first,) = await pop(1)
    by_id = {"id": first["id"], "partitionId": first["partitionId"], "leaseId": first["leaseId"]}
    outcomes = [await queen.ack(by_id, "completed")]
    (second,) = await pop(1)
    outcomes.append(await queen.ack(second, "retry"))
    (again,) = await pop(1)
    outcomes.append(await queen.ack(again, "dlq", {"error": "no use"}))
    outcomes.append(await queen.ack(await pop(2), "success"))
    return {
        "succeeded": [outcome["success"] for outcome in outcomes],
        "again": [second["data"], again["data"]],
        "dead": payloads((await queen.queue(queue).dlq().get())["messages"]),
        "nothing": await queen.ack([]),
        "left": await pop(10),
    }


async def look_through_dead_letters(queen, queue):
    for partition in ("a", "b"):
        await queen.queue(queue).partition(partition).push([{"data": partition + n} for n in "12"])
        for group in ("g", "h"):
            of_group = queen.queue(queue).partition(partition).group(group).batch(10).wait(False)
            await queen.ack(await of_group.pop(), "dlq", {"group": group, "error": "no use"})

    async def found(letters):
        page = await letters.get()
        return [sorted(payloads(page["messages"])), page["total"]]

    every = await queen.queue(queue).dlq().get()
    times = sorted(letter["failedAt"] for letter in every["messages"])
    return {
        "letter": every["messages"][-1],
        "every": await found(queen.queue(queue).dlq()),
        "group": await found(queen.queue(queue).dlq("g")),
        "partition": await found(queen.queue(queue).partition("b").dlq("h")),
        "first": await found(queen.queue(queue).dlq("g").limit(3)),
        "rest": await found(queen.queue(queue).dlq("g").limit(3).offset(3)),
        "more than a page": await found(queen.queue(queue).dlq("g").limit(5000)),
        "beyond": await found(queen.queue(queue).dlq("g").offset(100)),
        "before": await found(queen.queue(queue).dlq().to("2000-01-01T00:00:00Z")),
        "between": await found(queen.queue(queue).dlq().from_(times[0]).to(times[-1])),
        "of no queue": await found(queen.queue(f"{queue}-unknown").dlq()),
    }


async def acknowledge_in_transactions(queen, queue):
    await queen.queue(queue).push([{"data": number} for number in range(3)])
    messages = await queen.queue(queue).group("g").batch(2).wait(False).pop()
    of_group = {"consumer_group": "g"}
    both = await queen.transaction().ack(messages, "completed", of_group).commit()
    (last,) = await queen.queue(queue).group("g").wait(False).batch(1).pop()
    dead = await queen.transaction().ack(last, "dlq", of_group).commit()
    return {
        "succeeded": [result["success"] for result in both["results"] + dead["results"]],
        "dead": payloads((await queen.queue(queue).dlq("g").get())["messages"]),
        "empty": await error_of(queen.transaction().commit()),
        "left": await queen.queue(queue).group("g").wait(False).pop(),
    }


async def create_and_delete(queen, queue):
    seen = []

    async def remember(result):
        seen.append(result if isinstance(result, dict) else str(result))

    create = queen.queue(queue).config({"retry_limit": 5, "ack_mode": "individual"}).create()
    created = await create.on_success(remember)
    deleted = await queen.queue(queue).delete().on_success(remember)
    again = await queen.queue(queue).delete()
    refuse = queen.queue(queue).config({"lease_time": -1}).create()
    refused = await refuse.on_error(remember)
    return {"created": created, "deleted": [deleted, again], "refused": refused, "seen": seen}


async def survive_a_dead_server(queen, queue):
    dead = "http://127.0.0.1:9"
    seen = []
    for strategy in ("round-robin", "session", "affinity"):
        urls = [dead, stage.broker_url()]
        async with Queen({"urls": urls, "load_balancing_strategy": strategy}) as several:
            for number in range(3):
                await several.queue(queue).push({"data": [strategy, number]})
            # The client marks the dead server after its first failure and tries the other then.
            messages = await several.queue(queue).batch(10).wait(False).pop()
            acked = await several.ack(messages, True)
            seen.append([payloads(messages), acked["success"]])
    return {"seen": seen, "left": await queen.queue(queue).wait(False).pop()}


async def ask_for_sizes_by_hand(queen, queue):
    await queen.queue(queue).push([{"data": number} for number in range(5)])
    small = await queen.queue(queue).group("g").autopilot(False).wait(False).pop_result()
    return {"count": len(small.messages), "chosen": small.autopilot}


async def turn_to_conflation(queen, queue):
    await queen.queue(queue).push([{"data": number} for number in range(4)])

    def group():
        return queen.queue(queue).group("g").batch(1).wait(False)

    first = await group().pop()
    await queen.ack(first, True, {"group": "g"})
    newest = await group().conflation().pop()
    await queen.ack(newest, True, {"group": "g"})
    return {"first": payloads(first), "newest": payloads(newest), "left": await group().pop()}


async def go_beyond_the_message_plane(queen, queue):
    ephemeral = queen.ephemeral
    calls = {
        "ephemeral.configure": ephemeral.configure(queue),
        "ephemeral.reset": ephemeral.reset(queue),
        "ephemeral.delete": ephemeral.delete(queue),
        "ephemeral.push": ephemeral.push(queue, [1]),
        "ephemeral.pop": ephemeral.pop(queue),
        "ephemeral.ack": ephemeral.ack(queue, [{"id": "1"}]),
        "ephemeral.queues": ephemeral.queues(),
        "ephemeral.depth": ephemeral.depth(queue),
    }
    return {name: await error_of(call) for name, call in calls.items()}


async def ride_beyond_the_message_plane(queen, queue):
    def transaction():
        return queen.transaction().queue(queue).push({"data": "never"})

    def timer():
        return transaction().timer(queue).key("k").payload(1).partition("p").txn("t")

    bundles = {
        "timer.schedule": timer().after_ms(1).schedule(),
        "timer.reschedule": timer().after(timedelta(seconds=1)).reschedule(),
        "timer.cancel": timer().cancel(),
    }
    refused = {name: await error_of(bundle.commit()) for name, bundle in bundles.items()}
    return {"refused": refused, "pushed": await queen.queue(queue).wait(False).pop()}


async def hold_back(queen, queue):
    seen = {}
    for option in ("delayed_processing", "window_buffer"):
        name = f"{queue}-{option}"
        await queen.queue(name).config({option: 1}).create()
        await queen.queue(name).push([{"data": 1}, {"data": 2}])
        at_once = await queen.queue(name).batch(10).wait(False).pop()
        in_time = await queen.queue(name).batch(10).timeout_millis(10_000).pop()
        seen[option] = [payloads(at_once), payloads(in_time)]
    return seen


if __name__ == "__main__":
    stage.play(globals())

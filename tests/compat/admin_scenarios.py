"""What users of Queen's Python client do with its admin interface and with consumer groups.

Played as `stage` says.
"""

import stage
from stage import error_of, payloads


async def look_at_health(queen, _queue):
    return await queen.admin.health()


async def fill(queen, queue):
    """Push to two partitions; a group has one message under lease, and one dead letter."""
    await queen.queue(queue).namespace(f"ns-{queue}").task(f"task-{queue}").config({}).create()
    for partition in ("a", "b"):
        items = [{"data": f"{partition}{number}"} for number in range(3)]
        await queen.queue(queue).partition(partition).push(items)
    of_a = queen.queue(queue).partition("a").group("g").batch(1).wait(False)
    await queen.ack(await of_a.pop(), "dlq", {"group": "g", "error": "no use"})
    return await of_a.pop()


async def look_around(queen, queue):
    await fill(queen, queue)
    admin = queen.admin
    return {
        "overview": await admin.get_overview(),
        "namespaces": await admin.get_namespaces(),
        "tasks": await admin.get_tasks(),
        "queues": await admin.list_queues(search=queue, limit=5, offset=0),
        "queue": await admin.get_queue(queue),
        "partitions": await admin.get_partitions(queue=queue, limit=2),
        "queue stats": await admin.get_queue_stats(namespace=f"ns-{queue}", limit=5),
        "queue detail": await admin.get_queue_detail(queue),
        "unknown": [
            await error_of(admin.get_queue(f"{queue}-unknown")),
            await error_of(admin.get_queue_detail(f"{queue}-unknown")),
        ],
    }


async def look_at_messages(queen, queue):
    (leased,) = await fill(queen, queue)
    admin = queen.admin
    found = await admin.list_messages(queue=queue, limit=2, offset=0)
    waiting = await admin.list_messages(queue=queue, status="pending", partition="b")
    dead = await admin.list_messages(queue=queue, status="dead_letter")
    address = leased["partitionId"], leased["transactionId"]
    return {
        "found": found,
        "waiting": len(waiting["messages"]),
        "dead": len(dead["messages"]),
        "leased": await admin.get_message(*address),
        "unknown": await error_of(admin.get_message(leased["partitionId"], "unknown")),
    }


async def change_messages(queen, queue):
    (message,) = await fill(queen, queue)
    admin = queen.admin
    address = message["partitionId"], message["transactionId"]
    buried = await admin.move_message_to_dlq(*address)
    retried = await admin.retry_message(*address)
    pop = queen.queue(queue).partition("a").group("g").batch(10).wait(False).pop
    return {
        "buried": buried,
        "retried": retried,
        "deleted": await admin.delete_message(*address),
        "gone": await error_of(admin.get_message(*address)),
        "again": payloads(await pop()),
    }


async def clear(queen, queue):
    await fill(queen, queue)
    one = await queen.admin.clear_queue(queue, "b")
    return {
        "one": one,
        "rest": await queen.admin.clear_queue(queue),
        "left": await queen.queue(queue).group("other").wait(False).batch(10).pop(),
        "unknown": await error_of(queen.admin.clear_queue(f"{queue}-unknown")),
    }


async def manage_groups(queen, queue):
    await fill(queen, queue)
    admin, group = queen.admin, f"group of {queue}"

    async def pop():
        return payloads(await queen.queue(queue).group(group).batch(10).partitions(9).pop())

    await queen.queue(queue).group(group).batch(1).wait(False).pop()
    seen = {
        "listed": [each for each in await admin.list_consumer_groups() if each["name"] == group],
        "described": await admin.get_consumer_group(group),
        "lagging": [
            each for each in await admin.get_lagging_consumers(0) if each["queue_name"] == queue
        ],
        "refreshed": await admin.refresh_consumer_stats(),
        "to the end": await admin.seek_consumer_group(group, queue, {"toEnd": True}),
    }
    seen["at the end"] = await queen.queue(queue).group(group).wait(False).pop()
    long_ago = "2000-01-01T00:00:00Z"
    seen["back"] = await admin.seek_consumer_group(group, queue, {"timestamp": long_ago})
    seen["from the start"] = sorted(await pop())
    seen["nowhere"] = await error_of(admin.seek_consumer_group(group, queue))
    seen["moved"] = await queen.update_consumer_group_timestamp(group, long_ago)
    seen["deleted"] = await admin.delete_consumer_group_for_queue(group, queue)
    await pop()
    seen["deleted everywhere"] = await queen.delete_consumer_group(group)
    seen["gone"] = await error_of(admin.get_consumer_group(group))
    return seen


async def measure_depth(queen, queue):
    await fill(queen, queue)
    admin = queen.admin
    return {
        "queue": await admin.get_queue_depth(queue),
        "group": await admin.get_queue_depth(queue, "g"),
        "unknown": [
            await error_of(admin.get_queue_depth(f"{queue}-unknown")),
            await error_of(admin.get_queue_depth(queue, "unknown")),
        ],
    }


async def look_at_figures(queen, _queue):
    admin = queen.admin
    return {
        "status": await admin.get_status(),
        "analytics": await admin.get_analytics(interval="hour"),
        "metrics": await admin.metrics(),
        "system": await admin.get_system_metrics(),
        "workers": await admin.get_worker_metrics(),
        "postgres": await admin.get_postgres_stats(),
    }


async def maintain(queen, _queue):
    admin = queen.admin
    push, pop = "maintenanceMode", "popMaintenanceMode"
    return {
        "before": (await admin.get_maintenance_mode())[push],
        "during": (await admin.set_maintenance_mode(True))[push],
        "after": (await admin.set_maintenance_mode(False))[push],
        "pop_before": (await admin.get_pop_maintenance_mode())[pop],
        "pop_during": (await admin.set_pop_maintenance_mode(True))[pop],
        "pop_after": (await admin.set_pop_maintenance_mode(False))[pop],
    }


if __name__ == "__main__":
    stage.play(globals())

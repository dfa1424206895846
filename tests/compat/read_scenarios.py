"""What users of Queen's Python client read by offset, written against its public interface."""

from datetime import UTC, datetime

import stage


async def fetch(queen, queue):
    orders = queen.queue(queue)
    for partition in ("a", "b"):
        items = [{"data": {partition: number}} for number in range(3)]
        await orders.partition(partition).push(items)
    read = await orders.fetch(["a", "b", "never"])
    rest = await orders.fetch("a", offsets={"a": read["a"]["records"][1]["offset"]})
    small = await orders.fetch(["a", "b"], max_bytes=1)
    return {
        "payloads": {
            name: [record["payload"] for record in each["records"]] for name, each in read.items()
        },
        "dense": [
            [record["offset"] for record in each["records"]]
            == list(range(each["logStartOffset"], each["highWatermark"]))
            for each in read.values()
        ],
        "next": [each["nextOffset"] == each["highWatermark"] for each in read.values()],
        "rest": [record["payload"] for record in rest["a"]["records"]],
        "small": small["a"]["records"] == read["a"]["records"],
        "missing": (await queen.queue(f"{queue}-none").fetch("a"))["a"]["records"],
    }


async def changed_since(queen, queue):
    orders = queen.queue(queue)
    for partition in ("c", "a", "b"):
        await orders.partition(partition).push([{"data": 1}])
    every = await orders.changed_since()
    newest = max(each["lastWriteAt"] for each in every["partitions"])
    late = await orders.changed_since(datetime(2999, 1, 1, tzinfo=UTC))
    since = await orders.changed_since(newest)
    missing = await queen.queue(f"{queue}-none").changed_since()
    return {
        "every": [each["name"] for each in every["partitions"]],
        "last": [each["lastOffset"] for each in every["partitions"]],
        "late": late["partitions"],
        "since": len(since["partitions"]) >= 1,
        "safe": every["safeTime"] <= late["safeTime"],
        "missing": missing["partitions"],
    }


if __name__ == "__main__":
    stage.play(globals())

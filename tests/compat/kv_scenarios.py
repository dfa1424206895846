"""What users of Queen's Python client do with keys, written against its public interface."""

import asyncio

import stage


async def read_and_write(queen, ns):
    kv = queen.kv
    missing = await kv.get(ns, "a/1")
    put = await kv.put(ns, "a/1", {"n": 1}, ttl_seconds=60)
    got = await kv.get(ns, "a/1")
    refused = await kv.put(ns, "a/1", 2, forever=True, expect=put["version"] + 1)
    changed = await kv.put(ns, "a/1", 2, forever=True, expect=put["version"])
    await kv.put(ns, "a/2", None, forever=True)
    many = await kv.get_many(ns, ["a/2", "none"])
    page = await kv.get_prefix(ns, "a/", limit=1)
    return {
        "missing": bool(missing),
        "put": bool(put),
        "got": [got["value"], got["version"] == put["version"], got["expiresAt"] is not None],
        "refused": [bool(refused), refused["reason"], refused["value"]],
        "changed": [bool(changed), changed["version"] > put["version"]],
        "many": [[row["key"] for row in many["rows"]], many["missing"]],
        "page": [[row["key"] for row in page["rows"]], page["truncated"]],
        "listed": [row["key"] for row in await kv.list_all(ns, "a/", limit=1)],
        "deleted": [bool(await kv.delete(ns, "a/1")), bool(await kv.delete(ns, "a/1"))],
    }


async def count(queen, ns):
    added = await asyncio.gather(
        *(queen.kv.incr(ns, "n", delta=1, max=3, ttl_seconds=60) for _ in range(5))
    )
    return {
        "admitted": sorted(each["value"] for each in added if each),
        "refused": [each["reason"] for each in added if not each],
    }


async def claim_once(queen, ns):
    won = await asyncio.gather(*(queen.kv.once(ns, "job", ttl_seconds=60) for _ in range(5)))
    absent = await queen.kv.put_if_absent(ns, "job", 1, forever=True)
    return {"won": sorted(won), "absent": [bool(absent), absent["reason"]]}


async def batch(queen, ns):
    op = queen.kv.op
    kept = await queen.kv.batch(
        [op.put(ns, "x", 1, forever=True), op.incr(ns, "y", delta=2, forever=True)]
    )
    undone = await queen.kv.batch(
        [
            op.put(ns, "x", 2, forever=True),
            op.put_if_absent(ns, "y", 1, forever=True, required=True),
        ]
    )
    return {
        "kept": [bool(each) for each in kept],
        "undone": [bool(each) for each in undone],
        "x": (await queen.kv.get(ns, "x"))["value"],
    }


async def ride(queen, ns):
    def transaction(payload):
        return queen.transaction().queue(ns).push({"data": payload})

    won = await transaction("won").once(ns, "job", ttl_seconds=60).commit()
    lost = await transaction("lost").once(ns, "job", ttl_seconds=60).commit()
    put = await transaction("put").kv.put(ns, "n", 1, forever=True).commit()
    await transaction("incr").kv.incr(ns, "n", ttl_seconds=60).commit()
    read = await transaction("read").kv.get(ns, "n").kv.get_many(ns, ["n", "none"]).commit()
    await queen.transaction().kv.put_if_absent(ns, "alone", 1, ttl_seconds=60).commit()
    await transaction("delete").kv.delete(ns, "n").commit()
    messages = await queen.queue(ns).batch(10).wait(False).pop()
    return {
        "won": bool(won),
        "lost": [bool(lost), lost["reason"], lost["kvReason"], lost["value"], lost["failedIndex"]],
        "put": [each["type"] for each in put["results"]],
        "read": [read["results"][1]["value"], read["results"][2]["missing"]],
        "alone": bool(await queen.kv.get(ns, "alone")),
        "deleted": not await queen.kv.get(ns, "n"),
        "pushed": stage.payloads(messages),
    }


async def check(queen, ns):
    put = await queen.kv.put(ns, "k", 1, forever=True)
    held = await queen.kv.check(ns, "k", expect=put["version"])
    lost = await queen.kv.check(ns, "k", expect=0)
    return {"held": bool(held), "lost": [bool(lost), lost["reason"], lost["value"]]}


async def refusals(queen, ns):
    from queen.errors import KvError

    async def code_of(call):
        try:
            await call
        except KvError as error:
            return [error.code, error.response.json()["reason"]]
        return None

    return {
        "namespace": await code_of(queen.kv.get("NOT A NAMESPACE", "k")),
        "key": await code_of(queen.kv.get(ns, "k" * 600)),
        "value": await code_of(queen.kv.put(ns, "k", "x" * 70_000, forever=True)),
    }


if __name__ == "__main__":
    stage.play(globals())

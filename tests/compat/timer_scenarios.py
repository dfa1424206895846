"""What users of Queen's Python client do with timers, written against its public interface."""

from datetime import timedelta

import stage


async def fire(queen, queue):
    timed = await queen.timers.schedule(queue, "k", {"n": 1}, delay_ms=50)
    [message] = await queen.queue(queue).batch(1).wait(True).pop()
    return {
        "scheduled": [bool(timed), timed["status"], timed["timerKey"]],
        "payload": message["data"],
        "is_same": message["transactionId"] == timed["txn"],
    }


async def change(queen, queue):
    timers = queen.timers
    first = await timers.schedule(queue, "a/1", 1, delay_ms=600_000, txn="t-1")
    second = await timers.reschedule(queue, "a/1", {"n": 2}, delay=timedelta(hours=1))
    built = await (
        queen.timer(queue).key("a/2").payload("text").after_ms(600_000).partition("p").schedule()
    )
    peeked = await timers.peek(queue, "a/1")
    missing = await timers.peek(queue, "none")
    page = await timers.list(queue, limit=1)
    every = await timers.list_all(queue, limit=1)
    cancelled = await timers.cancel(queue, "a/1")
    absent = await timers.cancel(queue, "a/1", txn="t-1")
    results = (first, second, built, cancelled, absent)
    return {
        "statuses": [each["status"] for each in results],
        "truths": [bool(each) for each in (*results, peeked, missing)],
        "txn": [first["txn"], peeked["txn"] == second["txn"], absent["txn"]],
        "page": [[row["timerKey"] for row in page["rows"]], page["truncated"], page["nextAfter"]],
        "every": [(row["timerKey"], row["partition"]) for row in every],
        "later": second["deliverAt"] > first["deliverAt"],
    }


async def batch(queen, queue):
    op = queen.timers.op
    await queen.timers.schedule(queue, "old", 1, delay_ms=600_000)
    results = await queen.timers.batch(
        [op.schedule(queue, "new", 1, delay_ms=600_000), op.cancel(queue, "old")]
    )
    return [each["status"] for each in results]


async def refusals(queen, queue):
    from queen.errors import TimerError

    async def code_of(call):
        try:
            await call
        except TimerError as error:
            return [error.code, error.response.json()["reason"]]
        return None

    schedule = queen.timers.schedule
    return {
        "horizon": await code_of(schedule(queue, "k", 1, delay_ms=91 * 86_400_000)),
        "payload": await code_of(schedule(queue, "k", "x" * (1 << 20), delay_ms=1)),
        "key": await code_of(schedule(queue, "k" * 600, 1, delay_ms=1)),
        "bytes": await code_of(schedule(queue, "k", b"not JSON", delay_ms=1)),
    }


if __name__ == "__main__":
    stage.play(globals())

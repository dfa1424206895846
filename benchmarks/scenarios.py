"""The scenarios: what is loaded, who pushes and pops, and what is reported of it.

Every scenario has a queue of its own, so that none finds the backlog of another.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.bench import Bench, Outcome, outcome_of
from benchmarks.plan import PopRole, PushRole
from benchmarks.stats import per

# Sessions that went idle publish their statistics within ten seconds.
_STATISTICS_SETTLE_S = 11.0
_LONG_POLL_MS = 30_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named measurement."""

    name: str
    title: str
    run: Callable[[Bench], Awaitable[Outcome]]


def _push(items: int, partitions: int) -> Scenario:
    name = f"push-{items}x{partitions}"

    async def run(bench: Bench) -> Outcome:
        queue = bench.new_queue(name)
        await bench.fill(_touch(bench, queue, partitions))
        push = bench.pusher(queue, partitions=partitions, items=items)
        return outcome_of(await bench.measure([push]), "push")

    plural = "s" if partitions > 1 else ""
    return Scenario(name, f"push {items} per request, {partitions:,} partition{plural}", run)


def _push_segments(partitions: int) -> Scenario:
    """Requests of ten messages that stay in one partition: ten to a segment however many there are.

    The requests in flight are fewer than the partitions they go round, so no two meet in one.
    """
    name = f"push-segments-{partitions}"

    async def run(bench: Bench) -> Outcome:
        queue = bench.new_queue(name)
        await bench.fill(_touch(bench, queue, partitions))
        push = bench.pusher(queue, partitions=partitions, items=10, run_length=10)
        return outcome_of(await bench.measure([push]), "push")

    return Scenario(name, f"push 10 to one partition per request, {partitions:,} partitions", run)


def _pop_deep(*, auto_ack: bool, partitions_per_pop: int, partitions: int = 100) -> Scenario:
    name = f"pop-{'autoack' if auto_ack else 'leased'}-{partitions_per_pop}"
    if partitions != 100:
        name += f"x{partitions}"

    async def run(bench: Bench) -> Outcome:
        queue, backlog = bench.new_queue(name), bench.sizes.deep_backlog
        # Loaded as producers load it: the segments are those that push-100x100 leaves.
        await bench.fill(
            bench.pusher(queue, partitions=partitions, items=100, request_limit=backlog // 100)
        )
        pop = PopRole(
            name="pop",
            connections=bench.sizes.connections,
            queue=queue,
            batch=100,
            partitions=partitions_per_pop,
            auto_ack=auto_ack,
        )
        return outcome_of(await bench.measure_backlog(pop, backlog), "pop")

    how = "autoAck" if auto_ack else "leased + ack/batch"
    title = f"pop batch 100, {how}, {partitions_per_pop} partition(s) of {partitions:,} per pop"
    return Scenario(name, title, run)


def _pop_shallow(partitions: int) -> Scenario:
    """Ten messages to a segment, a segment to a pop: only the number of partitions differs."""
    name = f"pop-shallow-{partitions}"

    async def run(bench: Bench) -> Outcome:
        queue = bench.new_queue(name)
        per_partition = max(10, 100_000 // partitions)
        backlog = partitions * per_partition
        await bench.fill(_segments_of_ten(bench, queue, partitions, per_partition))
        pop = PopRole("pop", connections=bench.sizes.connections, queue=queue, batch=10)
        return outcome_of(await bench.measure_backlog(pop, backlog), "pop")

    return Scenario(name, f"pop batch 10, {partitions:,} partitions, segments of ten", run)


def _touch(bench: Bench, queue: str, partitions: int) -> PushRole:
    """One message in every partition, so that creating them is not in the figures."""
    items = min(partitions, 1_000)
    return bench.pusher(
        queue,
        partitions=partitions,
        items=items,
        connections=min(8, partitions // items),
        is_shuffled=False,
        request_limit=partitions // items,
    )


def _segments_of_ten(bench: Bench, queue: str, partitions: int, per_partition: int) -> PushRole:
    """A backlog in segments of ten: no partition is in two requests that fly at the same time."""
    requests_per_round = partitions // 100
    return bench.pusher(
        queue,
        partitions=partitions,
        items=1_000,
        run_length=10,
        connections=min(8, requests_per_round),
        is_shuffled=False,
        request_limit=requests_per_round * per_partition // 10,
    )


def _push_and_consume(name: str, partitions: int) -> Scenario:
    async def run(bench: Bench) -> Outcome:
        queue = bench.new_queue(name)
        half = max(1, bench.sizes.connections // 2)
        consumers = PopRole(
            name="consume",
            connections=half,
            queue=queue,
            batch=100,
            partitions=10,
            auto_ack=False,
            wait_ms=_LONG_POLL_MS,
        )
        push = bench.pusher(queue, partitions=partitions, items=10, connections=half)
        window = await bench.measure([consumers, push])
        outcome = outcome_of(window, "consume")
        outcome.figures |= {
            "pushed_per_s": per(window.messages("push"), outcome.figures["window_s"] or 0),
            "delivered_per_pushed": per(window.messages("consume"), window.messages("push")),
            "lag_messages": window.lag(),
            "push_p50_ms": window.latency_ms("push", 50),
            "push_p99_ms": window.latency_ms("push", 99),
        }
        return outcome

    title = f"push 10 per request while consumers pop and ack, {partitions:,} partitions"
    return Scenario(name, title, run)


async def _settle(bench: Bench) -> None:
    """Get what the scenarios before have left to autovacuum and to the disk out of the way.

    A commit waits until the gigabytes that they wrote have left the caches, and neither that nor
    their dead rows are the cost of being idle or of two hundred messages a second.
    """
    for statement in ("vacuum analyze", "checkpoint"):
        await bench.meter.connection.execute(statement)


def _end_to_end(name: str, consumers: int) -> Scenario:
    async def run(bench: Bench) -> Outcome:
        queue = bench.new_queue(name)
        await _settle(bench)
        consume = PopRole(
            name="consume",
            connections=consumers,
            queue=queue,
            batch=10,
            auto_ack=False,
            wait_ms=_LONG_POLL_MS,
            is_stamped=True,
        )
        push = bench.pusher(
            queue, partitions=100, items=1, connections=16, is_stamped=True, rate=200.0
        )
        # A p99 wants samples: ten seconds at 200 a second leave twenty above it.
        window = await bench.measure([consume, push], seconds=max(10.0, bench.sizes.seconds))
        outcome = outcome_of(window, "consume")
        outcome.figures |= {
            "lag_messages": window.lag(),
            "push_p50_ms": window.latency_ms("push", 50),
            "push_p99_ms": window.latency_ms("push", 99),
        }
        return outcome

    return Scenario(name, f"end to end at 200 msg/s, {consumers} wildcard long polls", run)


async def _run_idle(bench: Bench) -> Outcome:
    queue, partitions = bench.new_queue("idle"), 10_000
    await bench.fill(_touch(bench, queue, partitions))
    drain = PopRole("drain", connections=4, queue=queue, batch=1_000, partitions=1_000)
    await bench.drain(drain, partitions)
    await _settle(bench)
    parked = PopRole("parked", connections=1_000, queue=queue, batch=1, wait_ms=120_000)
    window = await bench.measure(
        [parked], warmup_s=_STATISTICS_SETTLE_S, seconds=max(10.0, bench.sizes.seconds)
    )
    usage, outcome = window.usage, outcome_of(window, "parked")
    cpu_percent = per(usage.cpu_s, usage.seconds)
    outcome.figures |= {
        "sql_calls_per_s": usage.statements / usage.seconds,
        "cpu_percent": None if cpu_percent is None else 100 * cpu_percent,
        "polls_answered": window.requests("parked"),
    }
    return outcome


SCENARIOS = (
    *(_push(items, partitions) for items in (1, 10, 100) for partitions in (1, 100, 1_000, 10_000)),
    *(_push_segments(partitions) for partitions in (100, 10_000)),
    *(
        _pop_deep(auto_ack=auto_ack, partitions_per_pop=partitions)
        for auto_ack in (True, False)
        for partitions in (1, 10)
    ),
    _pop_deep(auto_ack=True, partitions_per_pop=10, partitions=10_000),
    *(_pop_shallow(partitions) for partitions in (100, 10_000, 100_000)),
    _push_and_consume("push-and-consume", 100),
    _push_and_consume("push-and-consume-1000", 1_000),
    _end_to_end("end-to-end", 16),
    _end_to_end("end-to-end-8", 8),
    Scenario("idle", "idle: 1,000 parked polls, 10,000 partitions", _run_idle),
)

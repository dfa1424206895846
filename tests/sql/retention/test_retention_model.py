"""Retention against a model that keeps every message in a list, and under load."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.sql.support.housekeeping import Keeper
from tests.sql.support.log import ALWAYS, Guarantee, Poll

KEEP_S = 90
KEEP_COMPLETED_S = 30
PARTITIONS = "abc"
GUARANTEED = Guarantee(1 << 60, ALWAYS)
"""The word of a broker that knows every key; the keys of these tests are all different."""

pushes = st.tuples(
    st.just("push"),
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 4), min_size=1),
)
reads = st.tuples(st.just("read"), st.tuples(st.sampled_from("xy"), st.integers(1, 6)))
waits = st.tuples(st.just("wait"), st.sampled_from([5, 40, 100]))
holds = st.tuples(st.just("hold"), st.none())
releases = st.tuples(st.just("release"), st.none())
runs = st.tuples(st.just("run"), st.tuples(st.booleans(), st.integers(1, 5)))


@dataclass
class Segment:
    """What one push left in one partition."""

    count: int
    created_at: int
    number: int
    """Of the push; later ones are greater."""


@dataclass
class Model:
    """What should be in the log."""

    now: int = 0
    pushed: int = 0
    held_from: int | None = None
    segments: dict[str, list[Segment]] = field(
        default_factory=lambda: {partition: [] for partition in PARTITIONS}
    )
    tail: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 1))
    acked: dict[tuple[str, str], int] = field(
        default_factory=lambda: {
            (partition, group): 0 for partition in PARTITIONS for group in "xy"
        }
    )

    def run(self, *, is_completed):
        """Delete as the rules say, segment by segment from the old end."""
        for partition, kept in self.segments.items():
            done = min(self.acked[partition, group] for group in "xy")
            while kept and self._may_go(
                kept[0], self.tail[partition], done if is_completed else None
            ):
                self.tail[partition] += kept.pop(0).count
            for group in "xy":
                self.acked[partition, group] = max(
                    self.acked[partition, group], self.tail[partition] - 1
                )

    def _may_go(self, segment, first, done):
        return (
            segment.created_at < self.now - (KEEP_S if done is None else KEEP_COMPLETED_S)
            and (self.held_from is None or segment.number < self.held_from)
            and (done is None or first + segment.count - 1 <= done)
        )


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


class Play:
    """Does to the log what it does to the model."""

    def __init__(self, log, keeper):
        self.log, self.keeper, self.model = log, keeper, Model()

    async def begin(self):
        await self.log.clear()
        await self.log.execute("delete from skep.hold")
        self.ids = dict(zip(PARTITIONS, await self.log.provision("hive", *PARTITIONS), strict=True))
        self.groups = {name: await self.log.subscribe("hive", name) for name in "xy"}
        await self.log.configure(
            "hive",
            retention_enabled=True,
            retention_s=KEEP_S,
            completed_retention_s=KEEP_COMPLETED_S,
        )

    async def push(self, counts):
        self.model.pushed += 1
        number = self.model.pushed
        await self.log.push_writes(
            {
                self.ids[partition]: [f"{number}.{item}" for item in range(count)]
                for partition, count in counts.items()
            }
        )
        for partition, count in counts.items():
            self.model.segments[partition].append(Segment(count, self.model.now, number))

    async def read(self, wish):
        group, batch = wish
        await self.wait(1)
        poll = Poll(batch=batch, auto_ack=True)
        for message in (await self.log.pop(self.groups[group], poll)).messages:
            partition = next(name for name, id_ in self.ids.items() if id_ == message.partition_id)
            expected = self.model.acked[partition, group] + 1
            assert message.offset == expected, "a message was skipped or came twice"
            self.model.acked[partition, group] = message.offset

    async def wait(self, seconds):
        self.model.now += seconds
        await self.log.advance(seconds)

    async def hold(self, _):
        await self.keeper.hold()
        self.model.held_from = self.model.pushed + 1

    async def release(self, _):
        await self.log.value("select skep.release_hold('hive', 'spark')")
        self.model.held_from = None

    async def run(self, how):
        is_completed, limit = how
        kind, reached, is_done = "completed" if is_completed else "retention", 0, False
        while not is_done:
            step = await self.keeper.retain(kind, limit=limit, after=reached)
            reached, is_done = step.reached, step.is_done
        self.model.run(is_completed=is_completed)

    async def compare(self):
        for partition, id_ in self.ids.items():
            tail, head = await self.keeper.kept(id_)
            assert tail == self.model.tail[partition]
            assert head - tail + 1 == sum(each.count for each in self.model.segments[partition])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example([("push", {"a": 1}), ("hold", None), ("push", {"a": 2, "b": 1}), ("wait", 100)])
@given(
    st.lists(
        st.one_of(pushes, pushes, reads, waits, waits, holds, releases, runs),
        min_size=8,
        max_size=25,
    )
)
def test_the_log_keeps_what_the_rules_keep(log, keeper, arun, script):
    async def play():
        scene = Play(log, keeper)
        await scene.begin()
        for action, argument in [*script, ("run", (True, 3)), ("run", (False, 3))]:
            await getattr(scene, action)(argument)
            await scene.compare()

    arun(play())


async def test_nothing_unread_goes_and_nobody_deadlocks_while_all_are_at_work(
    log, open_log, keeper
):
    ids = await log.provision("hive", *PARTITIONS)
    groups = [await log.subscribe("hive", name) for name in "xy"]
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    await log.advance(3600)  # for this session everything is old as soon as it is there
    pushed = dict.fromkeys(ids, 0)
    rounds, finished = 40, asyncio.Event()

    async def push(session, name):
        for number in range(rounds):
            writes = {id_: [f"{name}.{number}.{id_}"] for id_ in ids}
            await session.push_writes(writes, dict.fromkeys(ids, GUARANTEED))
            for id_ in ids:
                pushed[id_] += 1

    async def consume(session, group):
        seen = {id_: [] for id_ in ids}
        while sum(map(len, seen.values())) < 2 * rounds * len(ids):
            await session.advance(0.001)
            for message in (await session.pop(group, Poll(auto_ack=True))).messages:
                seen[message.partition_id].append(message.offset)
        return seen

    async def delete():
        deleted = 0
        while not finished.is_set():
            deleted += (await keeper.retain("completed", limit=5)).messages
        return deleted

    sessions = [await open_log() for _ in range(4)]
    deleting = asyncio.get_running_loop().create_task(delete())
    async with asyncio.timeout(60):
        *seen, _, _ = await asyncio.gather(
            consume(sessions[0], groups[0]),
            consume(sessions[1], groups[1]),
            push(sessions[2], "p"),
            push(sessions[3], "q"),
        )
    finished.set()

    for by_partition in seen:
        assert by_partition == {id_: list(range(1, pushed[id_] + 1)) for id_ in ids}
    assert await deleting > 0
    for id_ in ids:
        await keeper.kept(id_)

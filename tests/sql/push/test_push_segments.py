from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sql.support.log import (
    ALWAYS,
    MICROSECOND,
    NOON,
    NOTHING,
    Guarantee,
    Poll,
    body_of,
    envelope,
    keys_of,
)
from tests.sql.support.operating import defer
from tests.support.sizes import sized

EXAMPLES = sized(60, large=200)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


async def test_messages_are_popped_in_the_order_of_their_offsets(log):
    partition, group = await log.partition()
    for names in ("ab", "c", "def"):
        await log.push(partition, *names, guarantee=Guarantee(0, ALWAYS))

    taken = await log.pop(group)

    assert [(m.offset, m.transaction_id) for m in taken.messages] == list(enumerate("abcdef", 1))


async def test_one_call_serves_many_partitions_of_many_queues(log):
    a, b = await log.provision("hive", "a", "b")
    [c] = await log.provision("wax", "a")
    await log.push(b, "z")

    rows = await log.push_writes({a: "pq", b: "r", c: "stu"})

    assert {row.partition_id: row.first for row in rows} == {a: 1, b: 2, c: 1}
    assert {row.created_at for row in rows} == {NOON}


@pytest.mark.parametrize("guarantee", [NOTHING, Guarantee(0, ALWAYS)], ids=["probed", "guaranteed"])
async def test_created_at_never_decreases_although_the_clock_does(log, guarantee):
    partition, _ = await log.partition()
    created = []
    for number, seconds in enumerate([0, -3600, -1, 1]):
        await log.set_clock(NOON + seconds * SECOND)
        row = await log.push(partition, f"message {number}", guarantee=guarantee)
        created.append(row.created_at)

    assert created == [NOON, NOON, NOON, NOON + SECOND]


@pytest.mark.parametrize("guarantee", [NOTHING, Guarantee(1, ALWAYS)], ids=["probed", "guaranteed"])
async def test_idle_partitions_are_woken_and_leased_ones_are_not(log, guarantee):
    partition, leased = await log.partition()
    await log.push(partition, "a")
    idle = await log.subscribe("hive", "bees")
    await log.pop(idle, Poll(auto_ack=True))
    await log.pop(leased, Poll(lease_s=60))
    await log.advance()

    await log.push(partition, "b", guarantee=guarantee)

    assert await log.next_available(idle) == 0
    assert await log.next_available(leased) == 59


async def test_a_push_that_is_refused_wakes_nobody(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.pop(group, Poll(auto_ack=True))

    await log.push(partition, "a")

    assert await log.next_available(group) is None


@pytest.mark.parametrize("guarantee", [NOTHING, Guarantee(0, ALWAYS)], ids=["probed", "guaranteed"])
async def test_a_partition_that_does_not_exist_gets_no_row(log, guarantee):
    partition, _ = await log.partition()

    rows = await log.push_writes({partition: "a", 1_000_000: "b"}, {partition: guarantee})

    assert [row.partition_id for row in rows] == [partition]


async def test_a_broker_that_knows_nothing_finds_every_duplicate_of_the_window(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b", "c")

    row = await log.push(partition, "x", "c", "a")

    assert row.duplicates == {1: 3, 2: 1}
    assert row.first is None


async def test_duplicates_in_what_others_pushed_meanwhile_are_found(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.push(partition, "theirs")

    row = await log.push(partition, "theirs", guarantee=Guarantee(1, ALWAYS))

    assert row.duplicates == {0: 2}
    assert (row.gap_first, row.gap_keys) == (2, keys_of(["theirs"]))


async def test_duplicates_older_than_the_broker_remembers_are_found(log):
    partition, _ = await log.partition()
    await log.push(partition, "old")
    await log.advance()
    await log.push(partition, "young")

    row = await log.push(partition, "old", guarantee=Guarantee(2, NOON + SECOND))

    assert row.duplicates == {0: 1}


async def test_a_broker_that_guarantees_for_the_whole_window_is_believed(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.advance(60)

    # Its word is wrong here, which is how one can tell that nobody looked.
    row = await log.push(partition, "a", guarantee=Guarantee(1, log.now - HOUR))

    assert row.first == 2


async def test_a_key_is_accepted_again_when_its_window_is_over(log):
    partition, _ = await log.partition()
    await log.configure("hive", dedup_window_s=60)
    await log.push(partition, "a")

    await log.set_clock(NOON + 60 * SECOND - MICROSECOND)
    inside = await log.push(partition, "a")
    await log.set_clock(NOON + 60 * SECOND)
    outside = await log.push(partition, "a")

    assert (inside.duplicates, outside.first) == ({0: 1}, 2)


async def test_a_window_of_zero_turns_detection_off(log):
    partition, _ = await log.partition()
    await log.configure("hive", dedup_window_s=0)
    await log.push(partition, "a")

    assert (await log.push(partition, "a")).first == 2


async def test_detection_that_is_off_stays_off_when_the_clock_is_set_back(log):
    partition, _ = await log.partition()
    await log.configure("hive", dedup_window_s=0)
    await log.push(partition, "a")
    await log.advance(-60)

    assert (await log.push(partition, "a")).first == 2


@pytest.mark.parametrize("window_s", [0, 60, 3600])
async def test_a_repeated_call_finds_what_the_first_stored_whatever_the_window(log, window_s):
    partition, _ = await log.partition()
    await log.configure("hive", dedup_window_s=window_s)
    await log.push(partition, "before")
    await log.push(partition, "a", "b")
    await log.advance(120)

    row = await log.push(partition, "a", "b", guarantee=Guarantee(1, ALWAYS), resolve=True)

    assert row.duplicates == {0: 2, 1: 3}


async def test_a_repeated_call_that_had_stored_nothing_stores_now(log):
    partition, _ = await log.partition()
    await log.push(partition, "before")

    row = await log.push(partition, "a", guarantee=Guarantee(1, ALWAYS), resolve=True)

    assert row.first == 2


async def test_the_same_key_in_another_partition_is_no_duplicate(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "same")

    assert (await log.push(b, "same")).first == 1


class Segment:
    """What the model remembers of a push."""

    def __init__(self, first, names, created_at):
        self.first = first
        self.names = names
        self.created_at = created_at

    @property
    def last(self):
        return self.first + len(self.names) - 1


class PartitionModel:
    """A partition as a plain list, with the rules for duplicates spelled out."""

    def __init__(self, window_s):
        self.window_s = window_s
        self.segments = []

    @property
    def head(self):
        return self.segments[-1].last if self.segments else 0

    def places(self, name):
        """Yield the offset and the time of every message with this name, oldest first."""
        for segment in self.segments:
            if name in segment.names:
                yield segment.first + segment.names.index(name), segment.created_at

    def duplicates(self, names, now, guarantee, *, resolve):
        """Return the newest offset of each name that may not be stored again, by index."""
        start = now - self.window_s * SECOND
        found = {}
        for index, name in enumerate(names):
            for offset, created_at in self.places(name):
                is_in_window = self.window_s > 0 and created_at > start
                if is_in_window or (resolve and offset > guarantee.to):
                    found[index] = offset
        return found

    def truthful(self, names, share, since):
        """Return a true guarantee about that share of the segments and since about that time."""
        to = [0, *(segment.last for segment in self.segments)][int(len(self.segments) * share)]
        lies = [at for name in names for offset, at in self.places(name) if offset <= to]
        return Guarantee(to, max([since, *(at + MICROSECOND for at in lies if at >= since)]))

    def append(self, names, now):
        created_at = max([now, *(segment.created_at for segment in self.segments[-1:])])
        self.segments.append(Segment(self.head + 1, names, created_at))
        return self.segments[-1]

    def keys_above(self, to):
        return keys_of(name for s in self.segments if s.first > to for name in s.names)


writes = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=3, unique=True)
steps = st.lists(
    st.fixed_dictionaries(
        {
            "seconds": st.sampled_from([0, 1, 5, 9, 10, 11, -4]),
            "writes": st.dictionaries(st.sampled_from([0, 1, 2]), writes, min_size=1),
            "share": st.floats(0, 1),
            "since_s": st.integers(-30, 10),
            "resolve": st.booleans(),
        }
    ),
    min_size=1,
    max_size=12,
)
WINDOWS_S = (10, 3, 0)
queue_numbers = count(1)


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps=steps)
def check_against_the_model(arun, log, steps):
    arun(replay(log, steps))


def test_duplicates_are_found_exactly_whatever_a_truthful_broker_guarantees_for(arun, log):
    check_against_the_model(arun, log)


async def replay(log, steps):
    await log.set_clock(NOON)
    partitions = {}
    for window_s in WINDOWS_S:
        queue = f"queue {next(queue_numbers)}"
        [partition] = await log.provision(queue, "a")
        await log.configure(queue, dedup_window_s=window_s)
        partitions[partition] = PartitionModel(window_s)
    for step in steps:
        await log.advance(step["seconds"])
        await push_and_compare(log, partitions, step)


async def push_and_compare(log, partitions, step):
    chosen = {list(partitions)[number]: names for number, names in step["writes"].items()}
    guarantees = {
        partition: partitions[partition].truthful(
            names, step["share"], log.now + step["since_s"] * SECOND
        )
        for partition, names in chosen.items()
    }

    rows = await log.push_writes(chosen, guarantees, resolve=step["resolve"])

    assert sorted(row.partition_id for row in rows) == sorted(chosen)
    for row in rows:
        partition, names = partitions[row.partition_id], chosen[row.partition_id]
        guarantee = guarantees[row.partition_id]
        expected = partition.duplicates(names, log.now, guarantee, resolve=step["resolve"])
        assert (row.duplicates or {}) == expected
        if row.gap_keys is not None:
            assert row.gap_first == guarantee.to + 1
            assert row.gap_keys == partition.keys_above(guarantee.to)
            assert row.gap_created_at == partition.segments[-1].created_at
        if expected:
            assert row.first is None
        else:
            stored = partition.append(names, log.now)
            assert (row.first, row.created_at) == (stored.first, stored.created_at)


async def test_a_push_of_a_broker_waits_behind_operations(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a)

    refused = await log.push_of_broker(a, "x")
    stored = await log.push_of_broker(b, "y")

    assert (refused.first, refused.duplicates) == (None, {})
    assert stored.first == 1
    assert await log.value("select head from skep.partition where id = $1", a) == 0


async def test_neighbours_of_a_partition_with_operations_are_stored(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a)
    versions = await log.versions([a])

    rows = await log.rows(
        "select * from skep.push_segments($1, $2, $3, $4, $5, $6, false, $7, $8)",
        [a, b],
        [1, 1],
        [0, 0],
        [NOTHING.since] * 2,
        [keys_of("x"), keys_of("y")],
        [body_of([envelope("x")]), body_of([envelope("y")])],
        list(versions),
        list(versions.values()),
    )

    assert {row["partition_id"]: row["first"] for row in rows} == {a: None, b: 1}


async def test_a_repeated_push_does_not_wait_behind_operations(log):
    [a] = await log.provision("hive", "a")
    await log.push_of_broker(a, "x")
    await defer(log, a)

    again = await log.push_of_broker(a, "x", resolve=True)

    assert again.duplicates == {0: 1}


async def test_what_the_database_pushes_itself_does_not_wait_behind_operations(log):
    [a] = await log.provision("hive", "a")
    await defer(log, a)

    assert (await log.push(a, "x")).first == 1

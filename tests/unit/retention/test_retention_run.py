import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.cluster.leadership import Term
from skep.broker.retention.history import BUCKET_MINUTES, BUCKETS_MAX, bucket_minutes
from skep.broker.retention.retention import (
    NOW_CALL,
    RETAIN_CALL,
    SCOUT_SEGMENTS_MAX,
    STEP_S,
    STEP_SIZE_MIN,
    WORK_CALL,
    Limits,
    RetentionDuty,
    RetentionRun,
    StepSize,
)
from skep.db.access.errors import LeadershipLost
from skep.db.access.functions import Functions
from skep.model.errors import Unavailable

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TERM = Term("work", uuid4())


class TestStepSize:
    @given(st.integers(1, 100_000), st.lists(st.floats(0, 1)))
    def test_it_stays_within_its_bounds(self, largest, lengths):
        size = StepSize(largest)
        for spent_s in lengths:
            size.adapt(spent_s)
            assert min(STEP_SIZE_MIN, largest) <= size.current <= largest

    @given(st.floats(0.0001, 0.004))
    def test_it_settles_where_a_step_takes_about_as_long_as_it_should(self, row_s):
        size = StepSize(100_000)
        for _ in range(30):
            size.adapt(size.current * row_s)

        assert STEP_S / 4 <= size.current * row_s <= STEP_S * 2


class Store:
    """Queues with so many old segments each, of which the first few are kept by somebody."""

    def __init__(self, queues, *, stuck=None, kind="retention"):
        self.left = dict(queues)
        self.stuck = stuck or {}
        self.kind = kind
        self.failure = None
        self.steps = []

    async def call(self, statement, *arguments):
        await asyncio.sleep(0)
        if statement == WORK_CALL:
            return [(queue_id, self.kind) for queue_id in self.left]
        if statement == NOW_CALL:
            return [(NOON,)]
        assert statement == RETAIN_CALL
        assert arguments[:2] == TERM
        queue_id, after, size = arguments[3], arguments[5], arguments[6]
        self.steps.append((queue_id, after))
        if self.failure:
            failure, self.failure = self.failure, None
            raise failure
        kept = self.stuck.get(queue_id, 0)
        if after < kept:
            reached = min(after + size, kept)
            is_done = reached == kept and not self.left[queue_id]
            return [(0, 0, 0, reached, is_done)]
        deleted = min(size, self.left[queue_id])
        self.left[queue_id] -= deleted
        return [(deleted * 10, deleted, 1, after + deleted, not self.left[queue_id])]


class Clock:
    """Goes on by a little with every look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 0.001
        return self.now


def nothing_buried(queue, count):
    pytest.fail(f"nobody evicts here, but {count} of {queue} were buried")


async def run_to_the_end(store, resume=None, kinds=("retention", "completed")):
    run = RetentionRun(
        Functions(store),
        TERM,
        Limits(1000, 1000),
        resume={} if resume is None else resume,
        note_letters=nothing_buried,
        now=Clock(),
    )
    await run.begin(kinds)
    while await run.work_for(0.1):
        pass
    return run


async def test_a_run_goes_through_all_queues_to_their_end():
    store = Store({1: 5, 2: 12_345, 3: 0})

    run = await run_to_the_end(store)

    assert store.left == {1: 0, 2: 0, 3: 0}
    assert run.removed["retention"] == 10 * (5 + 12_345)


async def test_a_run_leaves_other_kinds_alone():
    store = Store({1: 5})

    await run_to_the_end(store, kinds=("eviction",))

    assert store.left == {1: 5}


async def test_a_queue_that_fails_does_not_keep_the_others_from_their_turn():
    store = Store({1: 5, 2: 5})
    store.failure = Unavailable()
    run = RetentionRun(Functions(store), TERM, Limits(1000, 1000), nothing_buried, resume={})
    await run.begin(("retention",))

    with pytest.raises(Unavailable):
        await run.work_for(1)
    await run.work_for(1)

    assert store.left == {1: 5, 2: 0}


async def test_what_a_lagging_group_keeps_is_looked_at_in_bounded_pieces_run_by_run():
    store = Store({1: 50}, stuck={1: 3 * SCOUT_SEGMENTS_MAX}, kind="completed")
    resume = {}

    runs = 0
    while store.left[1]:
        before = len(store.steps)
        await run_to_the_end(store, resume)
        assert (len(store.steps) - before) * 1000 <= 1.2 * SCOUT_SEGMENTS_MAX
        runs += 1

    assert runs in (3, 4)
    assert resume == {1: 0}, "the next run begins with the oldest again"


async def test_a_duty_that_lost_its_lease_begins_a_new_run_when_it_leads_again():
    store = Store({1: 5, 2: 5})
    duty = RetentionDuty(
        sql=Functions(store),
        term=TERM,
        name="retention",
        kinds=("retention",),
        interval_s=1,
        limits=Limits(10, 10),
        note_letters=nothing_buried,
    )
    store.failure = LeadershipLost()

    with pytest.raises(LeadershipLost):
        await duty.run()
    while await duty.run():
        pass

    assert store.left == {1: 0, 2: 0}


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=4000)))
def test_a_chart_has_no_more_buckets_than_it_can_show(span):
    minutes = bucket_minutes(span)

    assert span <= timedelta(minutes=minutes * BUCKETS_MAX)
    assert minutes in BUCKET_MINUTES or minutes % BUCKET_MINUTES[-1] == 0

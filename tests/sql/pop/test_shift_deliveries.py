"""The deliveries of single messages, kept as a staircase: against a count for each."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import sized

SHIFT = "select * from skep.shift_deliveries($1, $2, $3, $4, $5, $6, $7)"
COUNT = """
select array_agg(skep.delivery_count($1, $2, $3, n) order by n)
from generate_series($4::bigint, $5) n
"""
FARTHEST = 12
claims = st.tuples(st.just("claim"), st.integers(1, 6))
newest = st.tuples(st.just("newest"), st.integers(1, 6))
acks = st.tuples(st.just("ack"), st.integers(1, 6))
returns = st.tuples(st.just("return"), st.just(0))


def test_every_message_has_its_own_count_whatever_is_claimed_acked_and_taken_back(log, arun):
    @settings(max_examples=sized(60, large=2_000), deadline=None)
    @given(st.lists(claims | acks | returns, max_size=12), st.lists(newest | acks | returns))
    def check(steps, conflated):
        """A group may come to conflate, and does so for ever."""
        arun(compare(log, [*steps, *conflated]))

    check()


async def compare(log, steps):
    state, acked, last = (0, 0, None), 0, None
    counts = Counter()
    for what, size in steps:
        if what == "claim" and acked < FARTHEST:
            last = min(acked + size, FARTHEST)
            counts.update(range(acked + 1, last + 1))
            state = tuple(await log.row(SHIFT, *state, acked, acked, last, 1))
        elif what == "newest" and acked < FARTHEST:
            last = min(acked + size, FARTHEST)
            counts = Counter({at: counts[at] for at in range(last, FARTHEST + 1)}) + Counter([last])
            state = tuple(await log.row(SHIFT, *state, acked, last - 1, last, 1))
        elif what == "ack":
            acked, last = min(acked + size, state[0]) if state[0] > acked else acked, None
        elif what == "return" and last is not None:
            counts -= Counter(range(acked + 1, last + 1))
            state, last = tuple(await log.row(SHIFT, *state, acked, acked, last, -1)), None
        found = await log.value(COUNT, *state, acked + 1, FARTHEST + 1)
        assert found == [counts[at] for at in range(acked + 1, FARTHEST + 2)]


async def test_claims_that_end_alike_need_no_steps(log):
    state = (0, 0, None)
    for _ in range(3):
        state = tuple(await log.row(SHIFT, *state, 4, 4, 9, 1))

    assert state == (9, 3, None)


async def test_a_step_that_is_acknowledged_is_forgotten(log):
    state = tuple(await log.row(SHIFT, 9, 2, None, 0, 0, 5, 1))
    assert state == (9, 3, [5, 3, 9, 2])

    assert tuple(await log.row(SHIFT, *state, 5, 5, 9, 1)) == (9, 3, None)


async def test_a_conflating_group_keeps_one_count_however_many_ends_it_claims(log):
    state = (0, 0, None)
    for last in (3, 4, 7, 7):
        state = tuple(await log.row(SHIFT, *state, 0, last - 1, last, 1))

    assert state == (7, 2, [6, 0, 7, 2])

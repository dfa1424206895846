from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

COUNTS = st.lists(st.integers(min_value=0, max_value=10**9), max_size=6)


async def add(log, left, right):
    return await log.value("select skep.add_counts($1, $2)", left, right)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(left=COUNTS, right=COUNTS)
def test_counts_are_added_place_by_place(arun, log, left, right):
    length = max(len(left), len(right))
    padded = [counts + [0] * (length - len(counts)) for counts in (left, right)]

    assert arun(add(log, left, right)) == [sum(pair) for pair in zip(*padded, strict=True)]


async def test_nothing_is_as_good_as_an_empty_histogram(log):
    assert await add(log, None, [1, 2]) == [1, 2]
    assert await add(log, None, None) == []

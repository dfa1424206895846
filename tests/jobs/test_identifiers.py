from hypothesis import given
from hypothesis import strategies as st

from skep.jobs.identifiers import TimeOrderedIds


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=50))
def test_ids_only_ever_grow_whatever_the_clock_does(steps):
    times = iter(steps)
    ids = TimeOrderedIds(clock_ns=lambda: next(times))

    made = [ids.next() for _ in steps]

    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {each.version for each in made} == {7}
    assert {each.variant for each in made} == {"specified in RFC 4122"}


def test_an_id_begins_with_its_millisecond():
    ids = TimeOrderedIds(clock_ns=lambda: 1_700_000_000_123_456_789)

    assert ids.next().int >> 80 == 1_700_000_000_123

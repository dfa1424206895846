"""Keys compared as arrays: what comes out is what comparing them one by one finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skep.spark.sink import duplicates
from skep.spark.sink.duplicates import KeyMatcher, keys_of


def key(number):
    return number.to_bytes(16, "little")


def keys(pairs):
    """Return keys given as pairs of a partition and a key."""
    data = b"".join(each for _, each in pairs)
    return keys_of(data, np.array([partition for partition, _ in pairs], np.int64))


def match(new, *stored):
    """Compare pairs with batches of stored ones, which have an offset each."""
    matcher = KeyMatcher(keys(new))
    for batch in stored:
        pairs, offsets = [pair for pair, _ in batch], [offset for _, offset in batch]
        matcher.compare(keys(pairs), np.array(offsets, np.int64))
    found = matcher.matches()
    places = dict(zip(found.partitions.tolist(), found.offsets.tolist(), strict=True))
    return found.duplicates.tolist(), places


def test_nothing_equal_is_nothing_found():
    new = [(0, key(1)), (0, key(2)), (1, key(3))]

    assert match(new, [((0, key(9)), 1)]) == ([], {})
    assert match(new) == ([], {})
    assert match([], [((0, key(9)), 1)]) == ([], {})
    assert match([(0, key(1))], []) == ([], {})


def test_the_same_key_counts_by_partition():
    assert match([(0, key(1)), (1, key(1)), (0, key(1))]) == ([2], {})
    assert match([(0, key(1)), (1, key(1))], [((1, key(1)), 7)]) == ([1], {1: 7})


def test_of_a_key_that_is_stored_all_new_ones_are_duplicates_and_the_newest_place_counts():
    new = [(0, key(1)), (0, key(2)), (0, key(1))]

    assert match(new, [((0, key(1)), 8)], [((0, key(1)), 5)]) == ([0, 2], {0: 8})


def test_equal_marks_are_not_taken_for_equal_keys():
    spread = int(duplicates._SPREAD)
    low, high = 5, 77 << 64
    twin = key(low ^ spread)  # in partition 1 it has the mark that the other has in partition 0
    new = [(0, key(low)), (0, key(low | high)), (1, twin)]

    assert keys(new).marks.tolist() == [low] * 3
    assert match(new) == ([], {})
    assert match(new, [((0, key(low | (1 << 64))), 3), ((1, twin), 4)]) == ([2], {1: 4})


PAIRS = st.tuples(st.integers(0, 2), st.integers(0, 7).map(key))


@given(
    new=st.lists(PAIRS, max_size=30),
    stored=st.lists(st.lists(PAIRS, max_size=12), max_size=3),
)
def test_arrays_find_what_dictionaries_find(new, stored):
    offsets = iter(range(1, 1000))
    batches = [[(pair, next(offsets)) for pair in batch] for batch in stored]
    newest = {pair: offset for batch in batches for pair, offset in batch}
    expected = [at for at, pair in enumerate(new) if pair in newest or pair in new[:at]]
    matcher = KeyMatcher(keys(new))
    for batch in batches:
        places = np.array([offset for _, offset in batch], np.int64)
        matcher.compare(keys([pair for pair, _ in batch]), places)

    found = matcher.matches()

    assert found.duplicates.tolist() == expected
    wanted = sorted((pair[0], newest[pair]) for pair in set(new) if pair in newest)
    assert sorted(zip(found.partitions.tolist(), found.offsets.tolist(), strict=True)) == wanted

"""The memory of leases: it finds what went out, and forgets the oldest when it is full."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.pop.lease_memory import KEY_BYTES, LeasedPartition, LeaseMemory

ROOMY = 1 << 20
LONG = 1_000
"""Messages of a range that is certainly searched by its index."""


def key(number):
    return number.to_bytes(KEY_BYTES, "big")


def keys(*numbers):
    return b"".join(map(key, numbers))


def leased_range(first, its_keys):
    partition = LeasedPartition()
    partition.add(first, its_keys)
    return partition


def test_a_message_is_found_by_lease_partition_and_key():
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("lease", 7, 100, keys(1, 2, 3))

    assert memory.find("lease", 7, key(2)) == 101


@pytest.mark.parametrize(
    ("lease_id", "partition_id", "sought"), [("other", 7, 2), ("lease", 8, 2), ("lease", 7, 9)]
)
def test_another_lease_partition_or_key_is_not_found(lease_id, partition_id, sought):
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("lease", 7, 100, keys(1, 2, 3))

    assert memory.find(lease_id, partition_id, key(sought)) is None


def test_a_lease_may_hold_several_ranges_of_several_partitions():
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("lease", 7, 100, keys(1, 2))
    memory.remember("lease", 7, 300, keys(3, 4))
    memory.remember("lease", 8, 500, keys(1))

    assert memory.find("lease", 7, key(4)) == 301
    assert memory.find("lease", 8, key(1)) == 500


def test_two_leases_do_not_mix():
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("first", 7, 1, keys(1))
    memory.remember("second", 7, 9, keys(1))

    assert [memory.find(lease, 7, key(1)) for lease in ("first", "second")] == [1, 9]


@pytest.mark.parametrize("count", [3, LONG], ids=["scanned", "indexed"])
def test_a_key_that_occurs_twice_is_left_to_the_database(count):
    numbers = [5, *range(10, 10 + count), 5]

    assert leased_range(100, keys(*numbers)).find(key(5)) is None
    assert leased_range(100, keys(*numbers)).find(key(10)) == 101


def test_a_key_in_two_ranges_of_a_partition_is_left_to_the_database():
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("lease", 7, 100, keys(1, 2))
    memory.remember("lease", 7, 300, keys(3, 1))

    assert [memory.find("lease", 7, key(number)) for number in (1, 2, 3)] == [None, 101, 300]


@pytest.mark.parametrize("count", [3, LONG], ids=["scanned", "indexed"])
def test_bytes_across_two_keys_are_no_key(count):
    left, right = bytes(8) + b"\1" * 8, b"\2" * 8 + bytes(8)
    leased = leased_range(1, left + right + keys(*range(10, 10 + count)))

    assert leased.find(left[8:] + right[:8]) is None
    assert leased.find(right) == 2


@given(
    numbers=st.lists(st.integers(0, 50), min_size=1, max_size=400),
    first=st.integers(1, 1 << 50),
    sought=st.integers(0, 60),
)
def test_long_and_short_ranges_are_searched_to_the_same_end(numbers, first, sought):
    # Beyond 32 keys an index answers; what it says must be what looking one by one says.
    found = leased_range(first, keys(*numbers)).find(key(sought))

    assert found == (first + numbers.index(sought) if numbers.count(sought) == 1 else None)


def test_an_indexed_range_answers_every_time():
    numbers = list(range(LONG))
    Random(1).shuffle(numbers)
    leased = leased_range(1, keys(*numbers))

    found = [leased.find(key(number)) for number in range(LONG)]

    assert found == [1 + numbers.index(number) for number in range(LONG)]


def test_a_partition_that_ended_is_forgotten_and_the_others_of_its_lease_are_not():
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("lease", 7, 1, keys(1))
    memory.remember("lease", 8, 1, keys(2))

    memory.forget("lease", 7)

    assert memory.find("lease", 7, key(1)) is None
    assert memory.find("lease", 8, key(2)) == 1


def test_forgetting_what_is_not_remembered_does_nothing():
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("lease", 7, 1, keys(1))

    memory.forget("other", 7)
    memory.forget("lease", 9)
    memory.forget("lease", 9)

    assert memory.find("lease", 7, key(1)) == 1


def test_above_the_bound_the_oldest_leases_are_forgotten():
    memory = LeaseMemory(bytes_max=10_000)

    for number in range(100):
        memory.remember(f"lease {number}", 7, 1, keys(*range(50)))

    is_found = [memory.find(f"lease {number}", 7, key(3)) is not None for number in range(100)]
    kept = is_found.count(True)
    assert 1 < kept < 13
    assert is_found == [False] * (100 - kept) + [True] * kept


def test_a_lease_larger_than_the_bound_is_remembered_while_it_is_the_newest():
    memory = LeaseMemory(bytes_max=100)

    memory.remember("large", 7, 1, keys(*range(50)))
    was_found = memory.find("large", 7, key(49))
    memory.remember("next", 7, 51, keys(1))

    assert was_found == 50
    assert memory.find("large", 7, key(49)) is None
    assert memory.find("next", 7, key(1)) == 51


def test_leases_that_ended_make_room():
    # Were a forgotten lease still counted, the bound would soon be used up by nothing.
    memory = LeaseMemory(bytes_max=10_000)
    memory.remember("long", 7, 1, keys(1))

    for number in range(1_000):
        memory.remember(f"lease {number}", 8, 1, keys(*range(50)))
        memory.forget(f"lease {number}", 8)

    assert memory.find("long", 7, key(1)) == 1


def test_it_knows_which_leases_are_acknowledged_message_by_message():
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("one by one", 7, 1, keys(1), is_individual=True)
    memory.remember("all at once", 7, 1, keys(1))

    assert memory.is_cumulative("all at once", 7, 1)
    assert not memory.is_cumulative("one by one", 7, 1)
    assert not memory.is_cumulative("unknown", 7, 1)


@pytest.mark.parametrize(("offset", "is_covered"), [(1, True), (6, True), (7, False)])
def test_an_ack_of_what_is_not_under_the_lease_covers_nothing(offset, is_covered):
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("lease", 7, 1, keys(1, 2))
    memory.remember("lease", 7, 5, keys(3, 4))

    assert memory.is_cumulative("lease", 7, offset) == is_covered


def test_a_lease_that_ended_is_forgotten_with_its_kind():
    memory = LeaseMemory(bytes_max=ROOMY)
    memory.remember("lease", 7, 1, keys(1), is_individual=True)
    memory.forget("lease", 7)

    memory.remember("lease", 7, 1, keys(1))

    assert memory.is_cumulative("lease", 7, 1)


def test_a_lease_pushed_out_by_newer_ones_is_forgotten_with_its_kind():
    memory = LeaseMemory(bytes_max=1)
    memory.remember("old", 7, 1, keys(1), is_individual=True)
    memory.remember("new", 7, 1, keys(1))

    memory.remember("old", 7, 1, keys(1))

    assert memory.is_cumulative("old", 7, 1)

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.ids import (
    OFFSET_MAX,
    PARTITION_ID_MAX,
    message_id,
    message_id_prefix,
    message_id_suffix,
    new_transaction_id,
    parse_address,
    parse_partition_uuid,
    partition_uuid,
)

partition_ids = st.integers(1, PARTITION_ID_MAX)
offsets = st.integers(1, OFFSET_MAX)


@given(partition_ids, offsets)
def test_a_message_id_leads_back_to_its_address(partition_id, offset):
    assert parse_address(message_id(partition_id, offset)) == (partition_id, offset)


@given(partition_ids)
def test_a_partition_uuid_leads_back_to_its_partition(partition_id):
    assert parse_partition_uuid(partition_uuid(partition_id)) == partition_id


@given(partition_ids, offsets)
def test_every_message_id_is_a_version_8_uuid_in_canonical_form(partition_id, offset):
    text = message_id(partition_id, offset)

    parsed = uuid.UUID(text)

    assert str(parsed) == text
    assert parsed.version == 8
    assert parsed.variant == uuid.RFC_4122


@given(partition_ids, offsets)
def test_prefix_and_suffix_make_up_the_message_id(partition_id, offset):
    prefix, suffix = message_id_prefix(partition_id), message_id_suffix(offset)

    assert prefix + suffix == message_id(partition_id, offset)
    assert (len(prefix), len(suffix)) == (19, 17)


@given(partition_ids, st.tuples(offsets, offsets))
def test_message_ids_of_a_partition_sort_by_offset(partition_id, pair):
    first, second = (message_id(partition_id, offset) for offset in pair)

    assert (first < second) == (pair[0] < pair[1])


@given(partition_ids, offsets)
def test_capital_letters_name_the_same_message(partition_id, offset):
    text = message_id(partition_id, offset).upper()

    assert parse_address(text) == (partition_id, offset)


@given(partition_ids, offsets)
def test_a_message_id_is_not_taken_for_a_partition(partition_id, offset):
    assert parse_partition_uuid(message_id(partition_id, offset)) is None


@given(st.uuids(version=4) | st.uuids(version=1) | st.uuids(version=5))
def test_a_uuid_of_another_version_is_no_address(stranger):
    assert parse_address(str(stranger)) is None


@given(st.integers(0, 2**128 - 1), st.booleans())
def test_what_is_taken_for_an_address_spells_itself_the_same_way(number, is_forced):
    version_and_variant = 8 << 76 | 0b10 << 62
    if is_forced:
        number = number & ~(0xF << 76 | 0b11 << 62) | version_and_variant
    text = str(uuid.UUID(int=number))

    address = parse_address(text)

    assert (address is not None) == (number & (0xF << 76 | 0b11 << 62) == version_and_variant)
    assert address is None or message_id(*address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not-an-id",
        "0" * 32,
        message_id(1, 1) + "0",
        message_id(1, 1)[:-1],
        message_id(1, 1).replace("8", "4", 1),
        message_id(1, 1)[:19] + "c" + message_id(1, 1)[20:],
    ],
)
def test_what_is_not_an_address_is_refused(text):
    assert parse_address(text) is None


def test_partition_zero_does_not_exist():
    assert parse_partition_uuid(partition_uuid(0)) is None


def test_new_transaction_ids_are_uuids_in_the_order_of_time():
    before = time.time_ns() // 1_000_000
    ids = [new_transaction_id() for _ in range(1_000)]

    parsed = [uuid.UUID(each) for each in ids]
    assert len(set(ids)) == 1_000
    assert {each.version for each in parsed} == {7}
    assert {each.variant for each in parsed} == {uuid.RFC_4122}
    assert [str(each) for each in parsed] == ids
    assert before <= parsed[0].int >> 80 <= parsed[-1].int >> 80
